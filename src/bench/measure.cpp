#include "bench/measure.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "bench/call.h"
#include "bench/probes.h"
#include "bench/timing.h"
#include "fovea/core/error.h"

namespace fovea::bench {
namespace {

using nlohmann::json;

// One of the programs that compute a row: Fovea, the call beside it, or a rival.
struct Contender {
  std::string name;
  std::function<std::vector<double>(std::int64_t)> run;
  double estimate = 0;
  std::vector<double> samples = {};
};

json request_of(const BenchCase& c, const BenchCall& call, const std::filesystem::path& folder) {
  json tensors;
  for (const auto& [name, tensor] : call.tensors()) {
    const std::filesystem::path path = folder / (name + ".raw");
    write_raw(path, tensor);
    json shape = json::array();
    for (const std::int64_t size : tensor.shape().sizes()) shape.push_back(size);
    tensors[name] = {{"file", path.string()}, {"dtype", to_string(tensor.dtype())}, {"shape", shape}};
  }
  return {{"do", "prepare"},
          {"pass", to_string(c.pass)},
          {"score", c.score},
          {"mask", c.mask},
          {"dtype", to_string(c.dtype)},
          {"shape",
           {c.shape.batch, c.shape.query_heads, c.shape.kv_heads, c.shape.query_len, c.shape.key_len,
            c.shape.head_dim}},
          {"tensors", tensors}};
}

// The relative difference (Frobenius norm) that two correct computations may have: some roundings of the
// dtype.
double tolerance_of(DType dtype) {
  return dtype == DType::f32 ? 256 * 0x1p-24 : dtype == DType::bf16 ? 8 * 0x1p-8 : 8 * 0x1p-11;
}

// Rivals whose results agree become contenders. The row keeps the reason for the others.
json take_rivals(const Measuring& m, const BenchCase& c, const BenchCall& call,
                 std::vector<Contender>& contenders) {
  json all = json::array();
  if (!m.rivals.any()) return all;
  const json prepared = m.rivals.prepare(request_of(c, call, m.folder.path()));
  for (const auto& read : std::filesystem::directory_iterator(m.folder.path())) std::filesystem::remove(read);
  for (json rival : prepared) {
    const auto name = rival.at("name").get<std::string>();
    if (!rival.contains("refused") && !(rival.at("error").get<double>() <= tolerance_of(c.dtype)))
      rival["refused"] = fmt::format("disagrees: relative error above {:.1e}", tolerance_of(c.dtype));
    if (!rival.contains("refused")) {
      contenders.push_back({name, [&m, name](std::int64_t count) { return m.rivals.run(name, count); },
                            rival.at("seconds").get<double>()});
    }
    rival.erase("seconds");
    all.push_back(rival);
  }
  return all;
}

// Runs turns, each with every probe and every contender. Contenders in different processes never run at once;
// the pause lets the threads of the one before stop spinning.
void interleave(const Measuring& m, const BenchCase& c, std::int64_t footprint,
                std::vector<Contender>& contenders, std::vector<Rates>& rates) {
  double turn = 0;
  for (const Contender& contender : contenders) turn += contender.estimate;
  const std::int64_t rounds = std::clamp<std::int64_t>(static_cast<std::int64_t>(m.seconds / turn), m.rounds,
                                                       std::max<std::int64_t>(9, m.rounds));
  const double burst = m.seconds / static_cast<double>(rounds * static_cast<std::int64_t>(contenders.size()));
  const auto pause = [&m] { std::this_thread::sleep_for(std::chrono::milliseconds(m.pause_ms)); };
  for (std::int64_t round = 0; round < rounds; ++round) {
    Rates& now = rates.emplace_back();
    pause();
    for (const Probe probe : probes_of(c)) {
      now.of[static_cast<std::size_t>(probe)] = measure(
          probe, {.threads = m.executor.thread_count(), .seconds = m.probe_seconds, .footprint = footprint});
    }
    for (std::size_t n = 0; n < contenders.size(); ++n) {
      Contender& contender = contenders[(n + static_cast<std::size_t>(round)) % contenders.size()];
      pause();
      const auto count =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(burst / contender.estimate), 1, 2000);
      const std::vector<double> seconds = contender.run(count);
      contender.samples.insert(contender.samples.end(), seconds.begin(), seconds.end());
    }
  }
}

Rates median_of(const std::vector<Rates>& rates) {
  Rates middle;
  for (std::size_t probe = 0; probe < std::size(all_probes); ++probe) {
    std::vector<double> values;
    for (const Rates& each : rates) values.push_back(each.of[probe]);
    middle.of[probe] = median(values);
  }
  return middle;
}

json spread_of(const std::vector<double>& samples) {
  return {{"median", median(samples)},
          {"lower_quartile", quantile(samples, 0.25)},
          {"upper_quartile", quantile(samples, 0.75)},
          {"runs", samples.size()}};
}

void fill_row(const BenchCase& c, const Work& work, const std::vector<Contender>& contenders,
              const std::vector<Rates>& rates, json& row) {
  const Rates middle = median_of(rates);
  const Limit limit = limit_of(c, work, middle);
  const double seconds = median(contenders[0].samples);
  row["seconds"] = spread_of(contenders[0].samples);
  for (const Probe probe : probes_of(c)) row["probes"][to_string(probe)] = middle[probe];
  row["limit"] = {{"seconds", limit.seconds()},
                  {"bound", limit.bound()},
                  {"product_seconds", limit.product},
                  {limit.tanh ? "tanh_seconds" : "exponential_seconds", limit.exponential},
                  {"byte_seconds", limit.bytes}};
  row["share"] = limit.seconds() / seconds;
  for (const Contender& contender : contenders) {
    if (contender.name == "beside")
      row["beside"] = {{"name", c.beside_name},
                       {"shape", to_string(c.beside)},
                       {"ratio", seconds / median(contender.samples)}};
    for (json& rival : row["rivals"]) {
      if (rival.at("name") != contender.name) continue;
      if (contender.samples.empty()) {
        rival["refused"] = "failed while it was timed";
      } else {
        rival["seconds"] = spread_of(contender.samples);
        rival["ratio"] = median(contender.samples) / seconds;
      }
    }
  }
}

// Whether a row that asks for less than full precision runs at full precision all the same.
bool runs_in_full(const Measuring& m, const BenchCase& c, const BenchCall& call) {
  if (c.precision == Precision::full) return false;
  BenchCase full = c;
  full.precision = Precision::full;
  const AttentionPlan plan =
      make_plan(spec_of(full), shape_of(full.shape), {.dtype = full.dtype, .kernel = m.kernel});
  return (c.pass == Pass::backward ? plan.backward_kernel() : plan.kernel()) == call.kernel();
}

}  // namespace

json measure_row(const Measuring& m, const BenchCase& c) {
  const Work work = work_of(c);
  json row{{"name", c.name()},
           {"group", c.group},
           {"dtype", to_string(c.dtype)},
           {"pass", to_string(c.pass)},
           {"score", c.score},
           {"mask", c.mask},
           {"shape", to_string(c.shape)},
           {"pairs", work.pairs},
           {"flops", work.flops},
           {"bytes", work.bytes},
           {"rivals", json::array()}};
  try {
    BenchCall call(c, m.kernel, m.executor);
    row["kernel"] = call.kernel();
    if (runs_in_full(m, c, call)) {
      row["absent"] = "no kernel here takes f32 in bf16 terms";
      return row;
    }
    call.run(1);
    if (c.precision != Precision::full) row["error"] = call.error();
    std::vector<Contender> contenders{
        {"fovea", [&call](std::int64_t count) { return call.run(count); }, call.run(1)[0]}};
    std::optional<BenchCall> beside;
    if (!c.beside_name.empty()) {
      BenchCase other = c;
      other.shape = c.beside;
      if (c.beside_name == "full")
        other.precision = Precision::full;
      else
        other.mask = "everything";
      beside.emplace(other, m.kernel, m.executor);
      beside->run(1);
      contenders.push_back(
          {"beside", [&beside](std::int64_t count) { return beside->run(count); }, beside->run(1)[0]});
    }
    row["rivals"] = take_rivals(m, c, call, contenders);
    std::vector<Rates> rates;
    interleave(m, c, static_cast<std::int64_t>(work.bytes), contenders, rates);
    fill_row(c, work, contenders, rates, row);
  } catch (const InvalidArgument& refusal) {
    row["absent"] = refusal.what();
  }
  m.rivals.drop();
  return row;
}

namespace {

struct WorkFolders {
  std::mutex mutex;
  std::set<std::filesystem::path> paths;
};
// Never destroyed: the thread that waits for signals may need it while the process ends.
WorkFolders& work_folders() {
  static WorkFolders& folders = *new WorkFolders;
  return folders;
}

void remove_folder(const std::filesystem::path& path) noexcept {
  // Another thread may write a file there between the removal of the contents and that of the folder.
  std::error_code error;
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::filesystem::remove_all(path, error);
    if (!error) return;
  }
}

}  // namespace

WorkFolder::WorkFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "fovea-bench-XXXXXX").string();
  WorkFolders& all = work_folders();
  const std::lock_guard lock(all.mutex);
  if (!mkdtemp(name.data())) throw FileError(name, 0, "cannot be made");
  path_ = *all.paths.insert(name).first;
}

WorkFolder::~WorkFolder() {
  WorkFolders& all = work_folders();
  const std::lock_guard lock(all.mutex);
  all.paths.erase(path_);
  remove_folder(path_);
}

void remove_work_folders() noexcept {
  WorkFolders& all = work_folders();
  const std::lock_guard lock(all.mutex);
  for (const std::filesystem::path& path : all.paths) remove_folder(path);
  all.paths.clear();
}

}  // namespace fovea::bench
