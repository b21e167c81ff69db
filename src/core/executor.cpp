#include "fovea/core/executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include "fovea/core/error.h"

namespace fovea {
namespace {

// Set while this thread is inside a parallel_for body: a nested call must not wait for workers that wait for
// it.
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

class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads) {
    try {
      for (int worker = 1; worker < threads; ++worker)
        workers_.emplace_back([this, worker] { work(worker); });
    } catch (const std::system_error& error) {
      const std::size_t started = workers_.size();
      stop();
      throw Error("make_thread_pool: thread " + std::to_string(started + 2) + " of " +
                  std::to_string(threads) + " could not be started: " + error.what());
    }
  }
  ~ThreadPool() override { stop(); }
  int thread_count() const noexcept override { return static_cast<int>(workers_.size()) + 1; }

  void parallel_for(std::int64_t count, ParallelBody body) override {
    if (count <= 0) return;
    if (count == 1 || workers_.empty() || inside_body) return serial_executor().parallel_for(count, body);
    const std::lock_guard one_caller(callers_);
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      count_ = count;
      next_.store(0, std::memory_order_relaxed);
      failure_ = nullptr;
      running_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    drain(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
    body_ = nullptr;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : workers_) thread.join();
  }

  void work(int worker) {
    std::uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
      }
      drain(worker);
      const std::lock_guard lock(mutex_);
      if (--running_ == 0) done_.notify_one();
    }
  }

  void drain(int worker) {
    const InsideBody guard;
    try {
      for (std::int64_t unit; (unit = next_.fetch_add(1, std::memory_order_relaxed)) < count_;)
        (*body_)(unit, worker);
    } catch (...) {
      next_.store(count_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex callers_, mutex_;
  std::condition_variable wake_, done_;
  std::atomic<std::int64_t> next_{0};
  const ParallelBody* body_ = nullptr;
  std::int64_t count_ = 0;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

// Cores this process may use, not cores the machine has: containers and taskset give fewer.
int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<Executor*> installed{nullptr};

}  // namespace

Executor& serial_executor() noexcept {
  static SerialExecutor executor;
  return executor;
}

std::unique_ptr<Executor> make_thread_pool(int threads) {
  if (threads < 1)
    throw InvalidArgument("make_thread_pool", "threads", "at least 1", std::to_string(threads));
  return std::make_unique<ThreadPool>(threads);
}

Executor& default_executor() {
  if (Executor* executor = installed.load(std::memory_order_acquire)) return *executor;
  static ThreadPool pool(usable_cores());
  return pool;
}

void set_default_executor(Executor* executor) noexcept {
  installed.store(executor, std::memory_order_release);
}

}  // namespace fovea
