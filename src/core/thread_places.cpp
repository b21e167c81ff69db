#include "core/thread_places.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#ifdef __linux__
#include <fcntl.h>
#include <sched.h>
#include <sys/types.h>
#include <unistd.h>
#endif

namespace fovea {

#ifdef __linux__
std::optional<CoreTime> core_time(int system_thread) noexcept {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/schedstat", system_thread);
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 96> text;
  const ssize_t bytes = read(file, text.data(), text.size());
  close(file);
  if (bytes <= 0) return std::nullopt;
  const char* const end = text.data() + bytes;
  CoreTime time;
  const auto run = std::from_chars(text.data(), end, time.run);
  if (run.ec != std::errc() || run.ptr == end) return std::nullopt;
  if (std::from_chars(run.ptr + 1, end, time.wait).ec != std::errc()) return std::nullopt;
  return time;
}
int system_thread() noexcept {
  return gettid();
}
#else
std::optional<CoreTime> core_time(int) noexcept {
  return std::nullopt;
}
int system_thread() noexcept {
  return 0;
}
#endif

namespace {

// A shorter trial says little: on Linux of 250 ticks a second a thread may wait for 4 ms before a program of
// low priority leaves its new core, and beside busy loops workers waited for none of the first 8 ms.
constexpr auto trial_time = std::chrono::milliseconds(12);
// A move takes some 30 us.
constexpr auto least_pause = std::chrono::milliseconds(1);
// A first failed trial takes 6 % of the time until the next one, and the sixth 0.2 %.
constexpr int pauses_per_trial = 16, most_doublings = 5;
constexpr auto pause_without_move = std::chrono::seconds(1);

}  // namespace

bool MovingRule::should_move(Time now, const std::optional<PairTime>& time) noexcept {
  if (trial_) {
    (void)trial_failed(now, time);
    return false;
  }
  if (!time) cannot_move(now);
  return now >= earliest_;
}

void MovingRule::cannot_move(Time now) noexcept {
  earliest_ = now + pause_without_move;
}

bool MovingRule::trial_is_over(Time now) const noexcept {
  return trial_ && now - trial_->begin >= trial_time;
}

bool MovingRule::trial_failed(Time now, const std::optional<PairTime>& time) noexcept {
  bool failed = false;
  const int pauses = pauses_per_trial << doublings_;
  // Times of another caller say nothing about this trial.
  if (time && time->caller == trial_->time.caller && trial_is_over(now)) {
    const CoreTime &before = trial_->time.spent, &after = time->spent;
    const std::int64_t run = after.run - before.run, wait = after.wait - before.wait;
    failed = 4 * wait > run + wait;
    doublings_ = failed ? std::min(doublings_ + 1, most_doublings) : std::max(doublings_ - 1, 0);
  }
  earliest_ = now + (failed ? pauses * trial_time : least_pause);
  trial_.reset();
  return failed;
}

ThreadPlaces::ThreadPlaces(int threads) : cores_(static_cast<std::size_t>(threads)) {
  for (std::atomic<int>& core : cores_) core.store(nowhere, std::memory_order_relaxed);
}

void ThreadPlaces::put(int thread, int core) noexcept {
  // Written only where it changes: the other threads read it in each loop.
  if (core_of(thread) != core)
    cores_[static_cast<std::size_t>(thread)].store(core, std::memory_order_relaxed);
}

bool ThreadPlaces::shares_core(int thread) const noexcept {
  const int core = core_of(thread);
  return core != nowhere &&
         std::any_of(cores_.begin(), cores_.begin() + thread, [core](const std::atomic<int>& other) {
           return other.load(std::memory_order_relaxed) == core;
         });
}

#ifdef __linux__
namespace {

// To a core of `wanted`, after which the thread may use those of `usable` again.
bool move_within(const cpu_set_t& wanted, const cpu_set_t& usable) noexcept {
  if (sched_setaffinity(0, sizeof wanted, &wanted) != 0) return false;
  (void)sched_setaffinity(0, sizeof usable, &usable);
  return true;
}

}  // namespace

void ThreadPlaces::arrive(int thread) noexcept {
  put(thread, sched_getcpu());
}

bool ThreadPlaces::move_away(int thread) noexcept {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return false;
  cpu_set_t free = usable;
  for (const std::atomic<int>& place : cores_) {
    const int core = place.load(std::memory_order_relaxed);
    if (core != nowhere) CPU_CLR(static_cast<std::size_t>(core), &free);
  }
  if (CPU_COUNT(&free) == 0 || !move_within(free, usable)) return false;
  arrive(thread);
  return true;
}

bool ThreadPlaces::move_to(int thread, int other) noexcept {
  const int core = core_of(other);
  cpu_set_t usable, one;
  if (core == nowhere || sched_getaffinity(0, sizeof usable, &usable) != 0) return false;
  if (!CPU_ISSET(static_cast<std::size_t>(core), &usable)) return false;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(core), &one);
  if (!move_within(one, usable)) return false;
  arrive(thread);
  return true;
}
#else
void ThreadPlaces::arrive(int) noexcept {}
bool ThreadPlaces::move_away(int) noexcept {
  return false;
}
bool ThreadPlaces::move_to(int, int) noexcept {
  return false;
}
#endif

}  // namespace fovea
