#include "fovea/core/profile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "core/replace_file.h"
#include "fovea/core/error.h"

namespace fovea {
namespace {

std::int64_t nanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A profile's number is never used again, so a thread can tell whether its record belongs to this profile.
std::atomic<std::uint64_t> profiles_made{0};
std::atomic<Profile::Impl*> recording{nullptr};

struct Event {
  const ProfileLabel* label;
  std::int64_t begin, end;
  ProfileWork work;
  bool backward;
};

}  // namespace

// What one thread has recorded.
struct ProfileSpan::Thread {
  std::vector<Event> events;
  std::map<std::pair<const ProfileLabel*, bool>, ProfileTotal> totals;
  ProfileSpan* innermost = nullptr;
  std::int64_t most_events = 0;
};

struct Profile::Impl {
  std::uint64_t number = profiles_made.fetch_add(1, std::memory_order_relaxed) + 1;
  std::int64_t most_events = 0, begin = nanoseconds(), end = 0;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<ProfileSpan::Thread>> threads;

  // The record of the calling thread, made at its first span. Null if there is no memory for it.
  ProfileSpan::Thread* mine() noexcept {
    thread_local std::uint64_t known = 0;
    thread_local ProfileSpan::Thread* thread = nullptr;
    if (known == number) return thread;
    try {
      auto fresh = std::make_unique<ProfileSpan::Thread>();
      fresh->most_events = most_events;
      const std::lock_guard lock(mutex);
      threads.push_back(std::move(fresh));
      thread = threads.back().get();
    } catch (const std::bad_alloc&) {
      thread = nullptr;
    }
    known = number;
    return thread;
  }
};

const char* to_string(ProfilePart part) noexcept {
  switch (part) {
    case ProfilePart::products:
      return "products";
    case ProfilePart::attention:
      return "attention";
    case ProfilePart::recurrence:
      return "recurrence";
    case ProfilePart::norms:
      return "norms";
    case ProfilePart::elementwise:
      return "element-wise";
    case ProfilePart::embeddings:
      return "embeddings";
    case ProfilePart::losses:
      return "losses";
    case ProfilePart::optimizer:
      return "optimizer";
    case ProfilePart::data:
      return "data";
    case ProfilePart::waiting:
      return "waiting";
    case ProfilePart::other:
      break;
  }
  return "other";
}

Profile::Profile(std::int64_t most_events) : impl_(std::make_unique<Impl>()) {
  impl_->most_events = std::max<std::int64_t>(most_events, 0);
  Impl* none = nullptr;
  if (!recording.compare_exchange_strong(none, impl_.get(), std::memory_order_acq_rel))
    throw InvalidArgument("Profile", "this", "no other profile that records", "one that records");
}

Profile::~Profile() {
  stop();
}

void Profile::stop() noexcept {
  Impl* mine = impl_.get();
  if (recording.compare_exchange_strong(mine, nullptr, std::memory_order_acq_rel)) impl_->end = nanoseconds();
}

double Profile::seconds() const noexcept {
  return static_cast<double>(impl_->end - impl_->begin) * 1e-9;
}

std::vector<ProfileTotal> Profile::totals() const {
  std::map<std::pair<const ProfileLabel*, bool>, ProfileTotal> sums;
  for (const auto& thread : impl_->threads) {
    for (const auto& [key, total] : thread->totals) {
      ProfileTotal& sum = sums[key];
      sum.label = total.label;
      sum.backward = total.backward;
      sum.count += total.count;
      sum.seconds += total.seconds;
      sum.own += total.own;
      sum.work.multiply_adds += total.work.multiply_adds;
      sum.work.bytes += total.work.bytes;
    }
  }
  std::vector<ProfileTotal> all;
  for (const auto& [key, total] : sums) all.push_back(total);
  std::stable_sort(all.begin(), all.end(),
                   [](const ProfileTotal& a, const ProfileTotal& b) { return a.own > b.own; });
  return all;
}

namespace {

// The time that the work takes at the machine's limits, divided by the time that it took. 0: not known.
double share_of_limit(const ProfileLabel& label, const ProfileWork& work, double seconds,
                      const ProfileLimits& limits) {
  double least = 0.0, rate = 0.0;
  if (label.operands == ProfileOperands::f32) rate = limits.multiply_adds_per_second;
  if (label.operands == ProfileOperands::bf16) rate = limits.bf16_multiply_adds_per_second;
  // The share of the bytes alone would be taken for that of the products.
  if (work.multiply_adds > 0.0 && rate == 0.0 && label.operands != ProfileOperands::f32) return 0.0;
  if (rate > 0.0) least = work.multiply_adds / rate;
  if (limits.bytes_per_second > 0.0) least = std::max(least, work.bytes / limits.bytes_per_second);
  return seconds > 0.0 ? least / seconds : 0.0;
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

void write_event(const Event& event, std::int64_t origin, std::size_t thread, const ProfileLimits& limits,
                 std::string& to) {
  char text[128];  // of numbers alone
  const double begin = static_cast<double>(event.begin - origin) * 1e-3,
               microseconds = static_cast<double>(event.end - event.begin) * 1e-3,
               share = share_of_limit(*event.label, event.work, microseconds * 1e-6, limits);
  to += R"({"name":")" + quoted(event.label->name) + (event.backward ? ", backward" : "") + R"(","cat":")" +
        to_string(event.label->part);
  int length = std::snprintf(text, sizeof text, R"(","ph":"X","pid":1,"tid":%zu,"ts":%.3f,"dur":%.3f)",
                             thread, begin, microseconds);
  to.append(text, static_cast<std::size_t>(length));
  const char* before = R"(,"args":{)";
  const auto argument = [&](const char* name, double value) {
    if (!(value > 0.0)) return;
    length = std::snprintf(text, sizeof text, R"(%s"%s":%.6g)", before, name, value);
    to.append(text, static_cast<std::size_t>(length));
    before = ",";
  };
  argument("multiply-adds", event.work.multiply_adds);
  argument("bytes", event.work.bytes);
  argument("share of the limit", share);
  to += *before == ',' && before[1] == '\0' ? "}},\n" : "},\n";
}

}  // namespace

void Profile::write_chrome_trace(const std::string& path, const ProfileLimits& limits) const {
  std::vector<std::string> texts{"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"};
  std::int64_t missing = 0;
  for (std::size_t thread = 0; thread < impl_->threads.size(); ++thread) {
    const ProfileSpan::Thread& from = *impl_->threads[thread];
    std::string& text = texts.emplace_back();
    for (const Event& event : from.events) write_event(event, impl_->begin, thread, limits, text);
    for (const auto& [key, total] : from.totals) missing += total.count;
    missing -= static_cast<std::int64_t>(from.events.size());
  }
  // The last event of the list, behind which no comma may stand, says what is missing.
  texts.push_back(
      R"({"name":"events that were not kept","ph":"i","s":"g","pid":1,"tid":0,"ts":0,"args":{"count":)" +
      std::to_string(missing) + "}}\n]}\n");
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  replace_file(path, pieces);
}

ProfileSpan::ProfileSpan(const ProfileLabel& label, const ProfileWork& work, bool backward) noexcept {
  Profile::Impl* profile = recording.load(std::memory_order_acquire);
  if (!profile) return;
  thread_ = profile->mine();
  if (!thread_) return;
  label_ = &label;
  work_ = work;
  backward_ = backward;
  outer_ = std::exchange(thread_->innermost, this);
  begin_ = nanoseconds();
}

ProfileSpan::~ProfileSpan() {
  if (!thread_) return;
  const std::int64_t end = nanoseconds(), took = end - begin_;
  thread_->innermost = outer_;
  if (outer_) outer_->inner_ += took;
  try {
    ProfileTotal& total = thread_->totals[{label_, backward_}];
    total.label = label_;
    total.backward = backward_;
    ++total.count;
    total.seconds += static_cast<double>(took) * 1e-9;
    total.own += static_cast<double>(took - inner_) * 1e-9;
    total.work.multiply_adds += work_.multiply_adds;
    total.work.bytes += work_.bytes;
    if (static_cast<std::int64_t>(thread_->events.size()) < thread_->most_events)
      thread_->events.push_back({label_, begin_, end, work_, backward_});
  } catch (
      const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): a span that cannot be kept is not counted
  }
}

const ProfileLabel* ProfileSpan::current() noexcept {
  Profile::Impl* profile = recording.load(std::memory_order_acquire);
  if (!profile) return nullptr;
  const Thread* thread = profile->mine();
  return thread && thread->innermost ? thread->innermost->label_ : nullptr;
}

}  // namespace fovea
