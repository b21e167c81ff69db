#include "bench/beside.h"

#include <chrono>
#include <thread>
#include <utility>

#include "bench/timing.h"

namespace fovea::bench {
namespace {

// The threads of libgomp spin for 3 ms behind their work, on the cores that the next turn needs.
constexpr std::chrono::milliseconds after_rival{10};

}  // namespace

Beside::Beside(Rivals& rivals, const RivalsOptions& options, const std::function<nlohmann::json()>& request,
               const std::function<std::string(const nlohmann::json&)>& check)
    : rivals_(rivals) {
  if (options.python == "none") return;
  nlohmann::json prepared;
  if (rivals.any()) {
    prepared = request();
    if (prepared.is_null()) return;
  }
  for (const nlohmann::json& one : rivals.list()) {
    if (one.contains("absent")) known_.push_back({.name = one["name"], .refused = one["absent"]});
  }
  if (!rivals.any()) return;
  prepared["do"] = "prepare";
  for (const nlohmann::json& one : rivals.prepare(std::move(prepared))) {
    std::string refused = one.value("refused", "");
    if (check && refused.empty()) refused = check(one);
    known_.push_back({.name = one["name"], .refused = std::move(refused), .note = one.value("note", "")});
  }
}

Beside::~Beside() {
  rivals_.drop();
}

void Beside::run(std::int64_t count, const nlohmann::json& how, RivalTurns& turns) const {
  for (const RivalTime& rival : known_) {
    if (!rival.refused.empty()) continue;
    const std::vector<double> seconds = rivals_.run(rival.name, count, how);
    std::vector<double>& all = turns[rival.name];
    all.insert(all.end(), seconds.begin(), seconds.end());
    std::this_thread::sleep_for(after_rival);
  }
}

std::vector<RivalTime> Beside::times(const RivalTurns& turns) const {
  std::vector<RivalTime> times = known_;
  for (RivalTime& rival : times) {
    if (!rival.refused.empty()) continue;
    const auto found = turns.find(rival.name);
    if (found == turns.end() || found->second.empty())
      rival.refused = "failed in its runs";
    else
      rival.seconds = median(found->second);
  }
  return times;
}

}  // namespace fovea::bench
