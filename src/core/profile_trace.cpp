// A profile's events as a trace of Chrome, each with its share of the machine's limit.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "core/profile_record.h"
#include "core/replace_file.h"

namespace fovea {
namespace {

// A time that is not known where a rate is missing.
struct Least {
  double seconds = 0.0;
  bool known = true;
  Least& operator+=(const Least& other) {
    seconds += other.seconds;
    known = known && other.known;
    return *this;
  }
};

// The least time of work on the threads of the limits, summed over these threads.
Least least_of(const ProfileEvent& event, const ProfileLimits& limits) {
  const ProfileWork& work = event.work;
  Least least;
  const double rate = event.label->operands == ProfileOperands::int8   ? limits.int8_multiply_adds_per_second
                      : event.label->operands == ProfileOperands::bf16 ? limits.bf16_multiply_adds_per_second
                                                                       : limits.multiply_adds_per_second;
  if (work.multiply_adds > 0.0) {
    if (rate > 0.0)
      least.seconds = work.multiply_adds / rate;
    else
      least.known = false;  // the share of the bytes alone would be taken for that of the products
  }
  double reading = limits.reading.empty() ? 0.0 : limits.reading.front().bytes_per_second;
  for (const ProfileLimits::Reading& entry : limits.reading) {
    if (entry.bytes <= work.bytes) reading = entry.bytes_per_second;
  }
  if (reading > 0.0) least.seconds = std::max(least.seconds, work.bytes / reading);
  least.seconds *= event.threads;
  return least;
}

struct Placed {
  const ProfileEvent* event;
  std::size_t thread;
  Least least;  // with all that is inside
};

// All events in the order of their ends. Those inside another one, on its thread or on the threads that
// worked for it, then stand before it.
std::vector<Placed> in_order(const Profile::Impl& profile) {
  std::vector<Placed> all;
  for (std::size_t thread = 0; thread < profile.threads.size(); ++thread) {
    for (const ProfileEvent& event : profile.threads[thread]->events) all.push_back({&event, thread, {}});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Placed& a, const Placed& b) { return a.event->end < b.event->end; });
  return all;
}

void add_up(std::vector<Placed>& all, std::size_t threads, const ProfileLimitsOf& limits) {
  std::map<int, ProfileLimits> known;
  std::vector<std::vector<const Placed*>> open(threads);  // whose outer event has not been seen
  std::map<std::uint64_t, Least> of_shares;               // by the number of the span that they worked for
  for (Placed& placed : all) {
    const ProfileEvent& event = *placed.event;
    auto at = known.find(event.threads);
    if (at == known.end()) at = known.emplace(event.threads, limits(event.threads)).first;
    placed.least = least_of(event, at->second);
    std::vector<const Placed*>& before = open[placed.thread];
    for (; !before.empty() && before.back()->event->begin >= event.begin; before.pop_back())
      placed.least += before.back()->least;
    if (const auto shares = of_shares.find(event.number); event.number != 0 && shares != of_shares.end())
      placed.least += shares->second;
    if (event.share_of != 0) of_shares[event.share_of] += placed.least;
    before.push_back(&placed);
  }
}

double share_of(const Placed& placed) {
  const double took = static_cast<double>(placed.event->end - placed.event->begin) * 1e-9;
  return took > 0.0 ? placed.least.seconds / (placed.event->threads * took) : 0.0;
}

// Labels are public, so a name may have any length and any characters.
std::string quoted(const char* name) {
  std::string text;
  for (; *name; ++name) {
    const char c = *name;
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return text;
}

class Writer {
 public:
  Writer(const Profile::Impl& profile, const ProfileLimitsOf& limits)
      : profile_(profile), with_shares_(limits != nullptr), all_(in_order(profile)) {
    if (!with_shares_) return;
    add_up(all_, profile.threads.size(), limits);
    for (const Placed& placed : all_) {
      if (placed.event->number != 0) calls_.emplace(placed.event->number, &placed);
    }
  }

  std::string text() const {
    std::string text;
    for (const Placed& placed : all_) write(placed, text);
    return text;
  }

 private:
  void write(const Placed& placed, std::string& to) const {
    const ProfileEvent& event = *placed.event;
    to += R"({"name":")" + quoted(event.label->name) + (event.backward ? ", backward" : "") + R"(","cat":")" +
          to_string(event.label->part);
    print(to, R"(","ph":"X","pid":1,"tid":%zu,"ts":%.3f,"dur":%.3f,"args":{"threads":%d)", placed.thread,
          static_cast<double>(event.begin - profile_.begin) * 1e-3,
          static_cast<double>(event.end - event.begin) * 1e-3, event.threads);
    if (event.work.multiply_adds > 0.0) print(to, R"(,"multiply-adds":%.6g)", event.work.multiply_adds);
    if (event.work.bytes > 0.0) print(to, R"(,"bytes":%.6g)", event.work.bytes);
    const Placed* counted = &placed;
    if (placed.least.seconds == 0.0) {
      const auto call = calls_.find(event.share_of);
      if (call != calls_.end()) counted = call->second;
    }
    if (with_shares_ && counted->least.known) print(to, R"(,"share of the limit":%.6g)", share_of(*counted));
    to += "}},\n";
  }

  template <class... Numbers>
  static void print(std::string& to, const char* format, Numbers... numbers) {
    char text[160];  // of numbers alone
    const int length = std::snprintf(text, sizeof text, format, numbers...);
    to.append(text, static_cast<std::size_t>(length));
  }

  const Profile::Impl& profile_;
  bool with_shares_;
  std::vector<Placed> all_;
  std::map<std::uint64_t, const Placed*> calls_;  // by number
};

}  // namespace

void Profile::write_chrome_trace(const std::string& path, const ProfileLimitsOf& limits) const {
  const std::string events = Writer(*impl_, limits).text(), missing = std::to_string(dropped());
  // The last event of the list, behind which no comma may stand, says what is missing where people look.
  const std::string end = R"({"name":"events that were not kept","ph":"i","s":"g","pid":1,"tid":0,"ts":0,)" +
                          (R"("args":{"count":)" + missing) + "}}\n]}\n",
                    begin = R"({"displayTimeUnit":"ms","otherData":{"events that were not kept":)" + missing +
                            R"(,"seconds":)" + std::to_string(seconds()) + "},\"traceEvents\":[\n";
  const std::string_view pieces[] = {begin, events, end};
  replace_file(path, pieces);
}

}  // namespace fovea
