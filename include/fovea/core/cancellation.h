// Stops a call that is running.
//
//   std::stop_source stop;  // or that of a std::jthread
//   CancellableExecutor executor(default_executor(), stop.get_token());
//   attend(plan, inputs, outputs, {.executor = &executor});  // throws Cancelled after stop.request_stop()
//
// Everything that takes an Executor can be stopped this way. The library installs no signal handler: a
// program that wants Ctrl-C to end a call requests the stop itself.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea {

/// A call ended because its executor was told to stop. What the call should have written is unspecified; its
/// inputs and its plan are as they were, and so is every other call.
class Cancelled : public Error {
 public:
  Cancelled() : Error("the call was cancelled") {}
};

/// Runs on another executor, with as many threads and the same results, until it is told to stop. The
/// question comes before every unit of work, and the engine's kernels ask again at every tile of keys, which
/// takes some ten microseconds: an atomic load each time. A parallel_for that has been told to stop throws
/// Cancelled as soon as no thread works on it any more. Several calls may share one CancellableExecutor: all
/// of them stop.
class CancellableExecutor final : public Executor {
 public:
  /// `executor` outlives this one.
  CancellableExecutor(Executor& executor, std::stop_token token);
  /// Asks `stopped` instead of a token: on every thread that works, several at once. It must not throw, and
  /// stays true once it was.
  CancellableExecutor(Executor& executor, std::function<bool()> stopped);

  int thread_count() const noexcept override { return executor_.thread_count(); }
  void parallel_for(std::int64_t count, ParallelBody body) override;

 private:
  friend void throw_if_cancelled();

  Executor& executor_;
  std::function<bool()> stopped_;
};

/// Throws Cancelled if this thread works for a CancellableExecutor that was told to stop. For a body whose
/// units take longer than a caller should wait.
void throw_if_cancelled();

}  // namespace fovea
