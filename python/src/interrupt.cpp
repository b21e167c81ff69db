#include "interrupt.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

#ifdef __linux__
#include <time.h>
#endif

#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "host_team.h"

namespace fovea::python {
namespace {

namespace nb = nanobind;

// People perceive less than 200 ms after Ctrl-C as immediate. A thread that holds the interpreter lock
// releases it after 5 ms, so waiting for it more often would slow down calls next to a busy program.
constexpr std::int64_t interval_ms = 100;

// Kernels ask at every tile of keys, which takes a microsecond where it is fastest: the coarse clock costs 5
// ns, the exact one 25.
std::int64_t now_ms() {
#ifdef __linux__
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000;
#else
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
#endif
}

// Does this thread run a Python signal handler in the midst of a call?
thread_local bool in_handler = false;

bool in_main_thread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return threading.attr("get_ident")().equal(threading.attr("main_thread")().attr("ident"));
}

class Signals {
 public:
  // On every thread that works.
  bool stopped() noexcept {
    if (stopped_.load(std::memory_order_relaxed)) return true;
    if (!listens_ || std::this_thread::get_id() != caller_ || in_handler) return false;
    if (now_ms() < next_) return false;
    run_handlers();
    next_ = now_ms() + interval_ms;
    return stopped_.load(std::memory_order_relaxed);
  }
  std::exception_ptr raised() const { return raised_; }

 private:
  void run_handlers() noexcept {
    const nb::gil_scoped_acquire lock;
    in_handler = true;
    try {
      listens_ = in_main_thread();
      if (listens_ && PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
      raised_ = std::current_exception();
      stopped_.store(true, std::memory_order_relaxed);
    }
    in_handler = false;
  }

  const std::thread::id caller_ = std::this_thread::get_id();
  std::int64_t next_ = now_ms() + interval_ms;  // this and listens_: of the calling thread
  bool listens_ = true;
  std::atomic<bool> stopped_{false};
  std::exception_ptr raised_;
};

// For a handler that calls the library during a call. The scratch memory of this thread and the pool belong
// to the interrupted call, so the handler's call runs on a thread of its own without a pool. Results are the
// same.
void run_apart(const std::function<void(Executor&)>& work) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work(serial_executor());
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void interruptible(const std::function<void(Executor&)>& work) {
  if (in_handler) {
    const nb::gil_scoped_release released;
    return run_apart(work);
  }
  Signals signals;
  try {
    const nb::gil_scoped_release released;
    CancellableExecutor executor(default_executor(), [&signals] { return signals.stopped(); });
    executor.run_small_calls_alone(least_shared_work());
    work(executor);
  } catch (const Cancelled&) {
    std::rethrow_exception(signals.raised());
  }
}

}  // namespace fovea::python
