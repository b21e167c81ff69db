// Here are tensors, element types, errors, executors, cancellation and random numbers: everything that the
// other directories build on. Attention is not here: see attention/ and plan/. Open tensor.h first.
//
// This header stops a call that is running.
//
//   std::stop_source stop;  // or that of a std::jthread
//   CancellableExecutor executor(default_executor(), stop.get_token());
//   attend(plan, inputs, outputs, {.executor = &executor});  // throws Cancelled after stop.request_stop()
//
// Every function that takes an Executor can be stopped this way. The library installs no signal handler: a
// program that wants Ctrl-C to end a call requests the stop itself.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea {

/// A call ended because its executor was told to stop. The contents of the call's outputs are unspecified.
/// Its inputs, its plan and all other calls are unaffected.
class Cancelled : public Error {
 public:
  Cancelled() : Error("the call was cancelled") {}
};

/// Runs on another executor, with as many threads and the same results, until it is told to stop. It looks
/// for the stop before every unit of work. The attention kernels look again at every tile of scores, which
/// takes some ten microseconds. Each look is an atomic load. A parallel_for that has been told to stop throws
/// Cancelled as soon as no thread works on it any more. If several calls share one CancellableExecutor, all
/// of them stop.
class CancellableExecutor final : public Executor {
 public:
  /// `executor` must outlive this object.
  CancellableExecutor(Executor& executor, std::stop_token token);
  /// Calls `stopped` instead of looking at a token. `stopped` is called from every working thread, several at
  /// once. It must not throw, and once it has returned true it must keep returning true.
  CancellableExecutor(Executor& executor, std::function<bool()> stopped);
  /// As a call without an executor: small calls run on the calling thread alone, and are not stopped.
  void run_small_calls_alone(double least_shared_work = least_work_of_pools) noexcept {
    least_shared_work_ = least_shared_work;
  }

  int thread_count() const noexcept override { return executor_.thread_count(); }
  void parallel_for(std::int64_t count, ParallelBody body) override;
  double least_shared_work() const noexcept override { return least_shared_work_; }

 private:
  friend void throw_if_cancelled();

  Executor& executor_;
  std::function<bool()> stopped_;
  double least_shared_work_ = 0.0;
};

/// Throws Cancelled if this thread works for a CancellableExecutor that was told to stop. For bodies whose
/// units take longer than a caller should wait.
void throw_if_cancelled();

}  // namespace fovea
