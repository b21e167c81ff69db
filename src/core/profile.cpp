#include "fovea/core/profile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <new>
#include <utility>

#include "core/profile_record.h"
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
std::atomic<std::uint64_t> calls_shared{0};
std::atomic<Profile::Impl*> active{nullptr};

ProfileSpan::Thread* thread_of_active() noexcept {
  Profile::Impl* profile = active.load(std::memory_order_acquire);
  return profile ? profile->mine() : nullptr;
}

}  // namespace

Profile::Impl::Impl()
    : number(profiles_made.fetch_add(1, std::memory_order_relaxed) + 1), begin(nanoseconds()) {}

ProfileSpan::Thread* Profile::Impl::mine() noexcept {
  thread_local std::uint64_t known = 0;
  thread_local ProfileSpan::Thread* thread = nullptr;
  if (known == number) return thread;
  try {
    auto fresh = std::make_unique<ProfileSpan::Thread>();
    fresh->most_events = most_events;
    fresh->last_end = begin;
    const std::lock_guard lock(mutex);
    threads.push_back(std::move(fresh));
    thread = threads.back().get();
  } catch (const std::bad_alloc&) {
    thread = nullptr;
  }
  known = number;
  return thread;
}

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
    case ProfilePart::search:
      return "search";
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
  if (!active.compare_exchange_strong(none, impl_.get(), std::memory_order_acq_rel))
    throw InvalidArgument("Profile", "this", "no other profile that records", "one that records");
}

Profile::~Profile() {
  stop();
}

void Profile::stop() noexcept {
  Impl* mine = impl_.get();
  if (active.compare_exchange_strong(mine, nullptr, std::memory_order_acq_rel)) impl_->end = nanoseconds();
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

std::vector<std::pair<ProfilePart, double>> Profile::parts(int threads) const {
  std::map<ProfilePart, double> sums;
  double of_pool = 0.0, of_first = 0.0;
  for (const auto& thread : impl_->threads) {
    for (const auto& [key, total] : thread->totals) {
      sums[total.label->part] += total.own;
      (thread->is_of_pool ? of_pool : of_first) += total.own;
    }
  }
  sums[ProfilePart::waiting] += std::max(0.0, (threads - 1) * seconds() - of_pool);
  sums[ProfilePart::other] += std::max(0.0, seconds() - of_first);
  std::vector<std::pair<ProfilePart, double>> parts(sums.begin(), sums.end());
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return parts;
}

std::int64_t Profile::dropped() const noexcept {
  std::int64_t sum = 0;
  for (const auto& thread : impl_->threads) sum += thread->dropped;
  return sum;
}

void ProfileSpan::Thread::keep(const ProfileEvent& event, std::int64_t own, bool counts) noexcept {
  try {
    ProfileTotal& total = totals[{event.label, event.backward}];
    total.label = event.label;
    total.backward = event.backward;
    total.count += counts ? 1 : 0;
    total.seconds += static_cast<double>(event.end - event.begin) * 1e-9;
    total.own += static_cast<double>(own) * 1e-9;
    total.work.multiply_adds += event.work.multiply_adds;
    total.work.bytes += event.work.bytes;
    if (static_cast<std::int64_t>(events.size()) >= most_events)
      ++dropped;
    else
      events.push_back(event);
  } catch (const std::bad_alloc&) {
    ++dropped;
  }
}

ProfileCall::ProfileCall(int threads) noexcept {
  const ProfileSpan::Thread* thread = thread_of_active();
  if (!thread) return;
  static constexpr ProfileLabel unnamed{"work outside of spans", ProfilePart::other};
  label_ = &unnamed;
  ProfileSpan* innermost = thread->innermost;
  for (ProfileSpan* span = innermost; span; span = span->outer_)
    span->threads_ = std::max(span->threads_, threads);
  if (!innermost) return;
  if (innermost->number_ == 0) innermost->number_ = calls_shared.fetch_add(1, std::memory_order_relaxed) + 1;
  label_ = innermost->label_;
  number_ = innermost->number_;
  backward_ = innermost->backward_;
}

void ProfileSpan::open(const ProfileLabel& label, bool backward) noexcept {
  thread_ = thread_of_active();
  if (!thread_) return;
  label_ = &label;
  backward_ = backward;
  outer_ = std::exchange(thread_->innermost, this);
  begin_ = nanoseconds();
}

ProfileSpan::ProfileSpan(const ProfileLabel& label, const ProfileWork& work, bool backward) noexcept {
  if (!active.load(std::memory_order_relaxed)) return;
  work_ = work;
  open(label, backward);
}

ProfileSpan::ProfileSpan(const ProfileCall& call) noexcept {
  if (!call.label_) return;
  share_of_ = call.number_;
  is_share_ = true;
  open(*call.label_, call.backward_);
  if (!thread_ || outer_) return;
  static constexpr ProfileLabel waiting{"waiting for work", ProfilePart::waiting};
  thread_->is_of_pool = true;
  thread_->keep({.label = &waiting, .begin = thread_->last_end, .end = begin_, .work = {}},
                begin_ - thread_->last_end, true);
}

ProfileSpan::~ProfileSpan() {
  if (!thread_) return;
  const std::int64_t end = nanoseconds(), took = end - begin_;
  thread_->innermost = outer_;
  if (outer_)
    outer_->inner_ += took;
  else
    thread_->last_end = end;
  thread_->keep({.label = label_,
                 .begin = begin_,
                 .end = end,
                 .work = work_,
                 .number = number_,
                 .share_of = share_of_,
                 .threads = threads_,
                 .backward = backward_},
                took - inner_, !is_share_);
}

ProfileSpan::Now ProfileSpan::current() noexcept {
  const Thread* thread = thread_of_active();
  if (!thread || !thread->innermost) return {};
  return {thread->innermost->label_, thread->innermost->work_};
}

void ProfileSpan::add(const ProfileWork& work) noexcept {
  const Thread* thread = thread_of_active();
  if (!thread || !thread->innermost) return;
  thread->innermost->work_.multiply_adds += work.multiply_adds;
  thread->innermost->work_.bytes += work.bytes;
}

bool ProfileSpan::recording() noexcept {
  return active.load(std::memory_order_relaxed) != nullptr;
}

}  // namespace fovea
