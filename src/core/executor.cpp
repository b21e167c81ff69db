#include "fovea/core/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if __has_include(<pthread.h>)
#include <pthread.h>
#endif

#include "core/awake_threads.h"
#include "core/cpu.h"
#include "core/thread_places.h"
#include "fovea/core/cancellation.h"
#include "fovea/core/error.h"
#include "fovea/core/profile.h"

namespace fovea {
namespace {

// Set while this thread is inside a body of parallel_for. A nested call must not wait for workers that wait
// for it.
thread_local bool inside_body = false;

struct InsideBody {
  InsideBody() { inside_body = true; }
  ~InsideBody() { inside_body = false; }
};

class SerialExecutor final : public Executor {
 public:
  int thread_count() const noexcept override { return 1; }
  void parallel_for(std::int64_t count, ParallelBody body) override {
    for (std::int64_t unit = 0; unit < count; ++unit) body(unit, 0);
  }
};

// Not inside a function: another thread may hold the guard of a local static at the moment of a fork.
constinit SerialExecutor serial;

// Held while the default pool is made, and during a fork. Otherwise a child could find a half-made pool whose
// maker does not exist in the child.
std::mutex default_pool_mutex;

// How many forks lie between this process and the one that loaded the library. A process id would tell the
// same, at the cost of a system call in each parallel_for.
std::atomic<std::uint64_t> forks{0};

#if __has_include(<pthread.h>)
// Runs while the library is loaded, before there are threads. Registering takes a lock of libc, and a fork
// holds that lock while it waits for default_pool_mutex.
[[maybe_unused]] const int handlers_registered =
    pthread_atfork([] { default_pool_mutex.lock(); }, [] { default_pool_mutex.unlock(); },
                   [] {
                     forks.fetch_add(1, std::memory_order_relaxed);
                     default_pool_mutex.unlock();
                   });
#endif

// system_thread() without a system call in each loop, which takes 0.1 us: a token of 30 layers has 150 loops.
// A fork gives the thread that it copies another number.
int known_system_thread() noexcept {
  thread_local int number = 0;
  thread_local std::uint64_t process = 0;
  const std::uint64_t now = forks.load(std::memory_order_relaxed);
  if (number == 0 || process != now) {
    number = system_thread();
    process = now;
  }
  return number;
}

// Pauses between two tries of a loop that waits for another core.
void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `holds` is true, for a while without giving up the core. Returns whether it became true. A
// sleeping thread takes 18 to 30 us to wake in a virtual machine. A call that decodes one token of 4,096 has
// two loops and lost a tenth of its time that way. Waiting longer would keep cores from programs that could
// use them.
template <class F>
bool holds_soon(F&& holds) {
  constexpr auto most = std::chrono::microseconds(50);
  constexpr int tries = 32;  // between two looks at the clock
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < tries; ++i) {
      if (holds()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() - begin < most);
  return holds();
}

// The units of a loop, a stretch of them for each worker. A worker whose stretch is done takes from the next
// one. Loops over the same rows, one behind the other, so find most of their rows in the cache of the core
// that wrote them. With one counter for all, 8 x 128 ids took up to a tenth longer by opus-mt in bf16 on a
// Zen 5 (docs/performance.md).
class Shares {
 public:
  void share_out(int workers, std::int64_t count) {
    if (std::ssize(shares_) < workers) shares_ = std::vector<Share>(static_cast<std::size_t>(workers));
    workers_ = workers;
    std::int64_t begin = 0;
    for (int w = 0; w < workers; ++w) {
      Share& share = shares_[static_cast<std::size_t>(w)];
      share.next.store(begin, std::memory_order_relaxed);
      share.end = begin += count / workers + (w < count % workers ? 1 : 0);
    }
  }
  // A unit that nobody has; below 0: there is none.
  std::int64_t take(int worker) {
    for (int n = 0; n < workers_; ++n) {
      Share& share = shares_[static_cast<std::size_t>((worker + n) % workers_)];
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      const std::int64_t unit = share.next.fetch_add(1, std::memory_order_relaxed);
      if (unit < share.end) return unit;
    }
    return -1;
  }
  // Leaves no unit to be taken.
  void drop() {
    for (int w = 0; w < workers_; ++w)
      shares_[static_cast<std::size_t>(w)].next.store(shares_[static_cast<std::size_t>(w)].end,
                                                      std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  std::vector<Share> shares_;
  int workers_ = 0;
};

// The threads of a pool in one process, and their shared state.
class Team {
 public:
  ~Team() { stop(); }
  bool of_this_process() const { return born_ == forks.load(std::memory_order_relaxed); }

  // Starts workers 1 to threads - 1. Throws std::system_error; workers that have started stay.
  void start(int threads) {
    started_ = true;
    spins_ = threads <= usable_cores();
    places_.emplace(threads);
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  }
  std::size_t started() const { return workers_.size(); }
  // Not while a loop runs: another caller would have to wait for its turn.
  bool waits_awake(int threads) const {
    return awake_.load(std::memory_order_relaxed) == threads - 1 &&
           inside_.load(std::memory_order_relaxed) == 0;
  }

  void run(int threads, std::int64_t count, const ParallelBody& body) {
    const std::unique_lock one_caller = turn();
    if (!started_) {
      try {
        start(threads);
      } catch (const std::system_error&) {  // fewer threads give the same results
      }
    }
    places_->arrive(0);
    caller_.store(known_system_thread(), std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      call_ = ProfileCall(call_threads(threads, count));
      shares_.share_out(call_threads(threads, count), count);
      failure_ = nullptr;
      inside_.store(open, std::memory_order_release);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    drain(0);
    // A worker that has not begun by now is not waited for: nothing is left for it, and beside other programs
    // it may not get a core soon.
    inside_.fetch_and(~open);
    static constexpr ProfileLabel label{"waiting for other threads", ProfilePart::waiting};
    const ProfileSpan span(label);
    const auto done = [this] { return inside_.load() == 0; };
    if (!spins_ || !holds_soon(done)) {
      std::unique_lock lock(mutex_);
      // An exchange, not a store: qemu on x86 lets the load of inside_ overtake an Arm store-release, and
      // two shares of the tests of plans slept for ever there.
      caller_sleeps_.exchange(true);
      done_.wait(lock, done);
      caller_sleeps_.store(false, std::memory_order_relaxed);
    }
    body_ = nullptr;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  // Retires a team that belongs to the parent process. It can neither be used nor destroyed. Its threads do
  // not exist here and cannot be joined, they may hold its locks, and destroying a condition variable waits
  // for its waiters. So the team stays in a list, where leak checkers see that it is kept on purpose.
  static void abandon(Team* team) {
    team->next_abandoned_ = abandoned.load(std::memory_order_relaxed);
    while (!abandoned.compare_exchange_weak(team->next_abandoned_, team, std::memory_order_relaxed)) {
    }
  }

 private:
  // Callers take turns. A caller that waits for another's call can be cancelled too. It looks every 20 ms,
  // which is soon enough for a person who presses Ctrl-C and costs the core nothing.
  std::unique_lock<std::timed_mutex> turn() {
    std::unique_lock lock(callers_, std::try_to_lock);
    while (!lock.owns_lock()) {
      throw_if_cancelled();
      (void)lock.try_lock_for(std::chrono::milliseconds(20));
    }
    return lock;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
    for (std::thread& thread : workers_) thread.join();
  }

  void work(int worker) {
    std::uint64_t seen = 0;
    MovingRule rule;
    if (spins_) awake_.fetch_add(1, std::memory_order_relaxed);
    const auto called = [&] {
      return stopping_.load(std::memory_order_relaxed) || generation_.load(std::memory_order_acquire) != seen;
    };
    for (;;) {
      if (!spins_ || !holds_soon(called)) {
        places_->leave(worker);
        if (spins_) awake_.fetch_sub(1, std::memory_order_relaxed);
        std::unique_lock lock(mutex_);
        wake_.wait(lock, called);
        if (spins_) awake_.fetch_add(1, std::memory_order_relaxed);
      }
      if (stopping_.load(std::memory_order_relaxed)) return;
      seen = generation_.load(std::memory_order_acquire);
      if (spins_) take_place(worker, rule);
      if (!enter()) continue;
      drain(worker);
      // A caller that still spins meets no lock here. Both sides are sequentially consistent: either this
      // worker sees that the caller sleeps, or the caller sees that nobody runs.
      if (inside_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
        const std::lock_guard lock(mutex_);
        done_.notify_one();
      }
    }
  }

  // Before the worker enters the loop, so that the caller does not wait for a move.
  void take_place(int worker, MovingRule& rule) {
    places_->arrive(worker);
    const bool shares_core = places_->shares_core(worker);
    if (!shares_core && !rule.tries()) return;
    const auto now = std::chrono::steady_clock::now();
    if (!shares_core) {
      if (rule.trial_is_over(now) && rule.trial_failed(now, time_with_caller()))
        (void)places_->move_to(worker, 0);
    } else if (rule.may_move(now)) {
      const std::optional<PairTime> time = time_with_caller();
      if (!rule.should_move(now, time)) return;
      places_->move_away(worker) ? rule.begin_trial(now, *time) : rule.cannot_move(now);
    }
  }

  std::optional<PairTime> time_with_caller() const {
    const int caller = caller_.load(std::memory_order_relaxed);
    const std::optional<CoreTime> own = core_time(system_thread()), callers = core_time(caller);
    if (!own || !callers) return std::nullopt;
    return PairTime{caller, {own->run + callers->run, own->wait + callers->wait}};
  }

  // Whether the loop still takes workers. What the caller has left for them stays until they leave.
  bool enter() {
    std::uint32_t inside = inside_.load(std::memory_order_relaxed);
    while (inside & open) {
      if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  static int call_threads(int threads, std::int64_t count) {
    return static_cast<int>(std::min<std::int64_t>(threads, count));
  }

  void drain(int worker) {
    const InsideBody guard;
    std::int64_t unit = shares_.take(worker);
    if (unit < 0) return;
    const ProfileSpan share(worker == 0 ? ProfileCall() : call_);
    try {
      for (; unit >= 0; unit = shares_.take(worker)) (*body_)(unit, worker);
    } catch (...) {
      shares_.drop();
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  static inline std::atomic<Team*> abandoned{nullptr};
  Team* next_abandoned_ = nullptr;
  const std::uint64_t born_ = forks.load(std::memory_order_relaxed);
  bool started_ = false;
  std::vector<std::thread> workers_;
  std::optional<ThreadPlaces> places_;  // of the caller, which is thread 0, and the workers
  std::atomic<int> caller_{0};          // its number in the system
  std::timed_mutex callers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Shares shares_;
  const ParallelBody* body_ = nullptr;
  ProfileCall call_;  // of the calling thread, while a profile records
  std::atomic<std::uint64_t> generation_{0};
  static constexpr std::uint32_t open = 1u << 31;
  std::atomic<std::uint32_t> inside_{0};  // workers in the loop, and `open` while others may enter
  std::atomic<int> awake_{0};             // workers that spin and are not asleep
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stopping_{false};
  bool spins_ = false;  // with more threads than cores, a spinning thread would keep another from working
  std::exception_ptr failure_;
};

class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads) : threads_(threads) {
    auto team = std::make_unique<Team>();
    try {
      team->start(threads);
    } catch (const std::system_error& error) {
      throw Error("make_thread_pool: thread " + std::to_string(team->started() + 2) + " of " +
                  std::to_string(threads) + " could not be started: " + error.what());
    }
    team_ = team.release();
  }
  ~ThreadPool() override {
    Team* team = team_.load(std::memory_order_acquire);
    if (team->of_this_process())
      delete team;
    else
      Team::abandon(team);
  }
  int thread_count() const noexcept override { return threads_; }
  bool is_awake() const noexcept {
    const Team* now = team_.load(std::memory_order_acquire);
    return threads_ > 1 && now->of_this_process() && now->waits_awake(threads_);
  }

  void parallel_for(std::int64_t count, ParallelBody body) override {
    if (count <= 0) return;
    if (count == 1 || threads_ == 1 || inside_body) return serial.parallel_for(count, body);
    team().run(threads_, count, body);
  }

 private:
  // In a forked child the first call makes a team of the child's own. This uses no lock, which a fork might
  // find held. If several threads arrive first together, the team of one stays; no thread has started in the
  // others.
  Team& team() {
    Team* now = team_.load(std::memory_order_acquire);
    if (now->of_this_process()) return *now;
    auto fresh = std::make_unique<Team>();
    if (!team_.compare_exchange_strong(now, fresh.get(), std::memory_order_acq_rel)) return *now;
    Team::abandon(now);
    return *fresh.release();
  }

  const int threads_;
  std::atomic<Team*> team_{nullptr};
};

std::atomic<Executor*> installed{nullptr}, own_pool{nullptr};

}  // namespace

bool default_threads_are_awake() noexcept {
  const Executor* executor = installed.load(std::memory_order_acquire);
  if (!executor) executor = own_pool.load(std::memory_order_acquire);
  const auto* pool = dynamic_cast<const ThreadPool*>(executor);
  return pool && pool->is_awake();
}

Executor& serial_executor() noexcept {
  return serial;
}

std::unique_ptr<Executor> make_thread_pool(int threads) {
  if (threads < 1)
    throw InvalidArgument("make_thread_pool", "threads", "at least 1", std::to_string(threads));
  return std::make_unique<ThreadPool>(threads);
}

Executor& default_executor() {
  if (Executor* executor = installed.load(std::memory_order_acquire)) return *executor;
  if (Executor* executor = own_pool.load(std::memory_order_acquire)) return *executor;
  const std::lock_guard lock(default_pool_mutex);
  static ThreadPool pool(usable_cores());
  own_pool.store(&pool, std::memory_order_release);
  return pool;
}

void set_default_executor(Executor* executor) noexcept {
  installed.store(executor, std::memory_order_release);
}

}  // namespace fovea
