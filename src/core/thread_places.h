// Which cores the threads of a pool run on, and when a worker leaves a core that it shares with another.
//
// Where no core is idle, Linux wakes a thread on the core where it ran last. So a worker that once ran on the
// core of its caller stays there for long. Another core may have nothing to do but a program of low priority
// (docs/performance.md, "Beside a program of low priority").
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace fovea {

/// What threads have got of the cores since they began, in nanoseconds.
struct CoreTime {
  std::int64_t run = 0;
  std::int64_t wait = 0;  ///< ready to run, while other threads had the core
};

/// That of a thread of this process, by its number in the system. Nothing where the system does not tell it.
std::optional<CoreTime> core_time(int system_thread) noexcept;
/// The number of the calling thread in the system, and 0 where it has none.
int system_thread() noexcept;

/// What a worker and its caller have got together.
struct PairTime {
  int caller = 0;  ///< its number in the system
  CoreTime spent;
};

/// When a worker that shares its core moves to another one. Another program of the same priority may run on
/// the new core. Worker and caller then wait for their cores in turn, and sharing one core is better. So a
/// move is a trial. If the two wait for cores for more than a quarter of their time, the worker goes back,
/// and stays for a while. Each failed trial doubles this pause, up to some 6 s, and each successful trial
/// halves it. Times are read only where `may_move` or `trial_is_over` says so, since that takes 10 us.
/// Without them, as where /proc is not mounted, no worker moves.
class MovingRule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Whether a move is on trial.
  bool tries() const noexcept { return trial_.has_value(); }
  /// The worker shares its core. Whether `should_move` has anything to decide.
  bool may_move(Time now) const noexcept { return trial_ || now >= earliest_; }
  /// The worker shares its core. Whether it moves away. A trial has then ended.
  bool should_move(Time now, const std::optional<PairTime>& time) noexcept;
  /// The worker begins to move away.
  void begin_trial(Time now, const PairTime& time) noexcept { trial_ = Trial{now, time}; }
  /// There is no core to move to, or no time to judge a move by.
  void cannot_move(Time now) noexcept;
  /// The worker has its core for itself.
  bool trial_is_over(Time now) const noexcept;
  /// Ends the trial. Whether it failed, and the worker goes back.
  bool trial_failed(Time now, const std::optional<PairTime>& time) noexcept;

 private:
  struct Trial {
    Time begin;
    PairTime time;
  };
  std::optional<Trial> trial_;
  int doublings_ = 0;  // of the pause behind a failed trial: failed trials less those that did not fail
  Time earliest_{};    // of the next move
};

/// The cores of a pool's threads. A thread writes its own and reads those of the others.
class ThreadPlaces {
 public:
  explicit ThreadPlaces(int threads);
  /// Notes the core of the calling thread, which is `thread` of the pool.
  void arrive(int thread) noexcept;
  /// `thread` is about to sleep.
  void leave(int thread) noexcept { put(thread, nowhere); }
  /// Whether a thread with a smaller number is on the same core. Of two threads only one must move.
  bool shares_core(int thread) const noexcept;
  /// Moves the calling thread to a core without a thread of the pool. Returns false where it may use none.
  /// Afterwards it may use the same cores as before.
  bool move_away(int thread) noexcept;
  /// Moves the calling thread to the core of `other`, likewise.
  bool move_to(int thread, int other) noexcept;

 private:
  static constexpr int nowhere = -1;
  int core_of(int thread) const noexcept {
    return cores_[static_cast<std::size_t>(thread)].load(std::memory_order_relaxed);
  }
  void put(int thread, int core) noexcept;
  std::vector<std::atomic<int>> cores_;
};

}  // namespace fovea
