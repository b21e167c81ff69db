#include "fovea/core/cancellation.h"

#include <utility>

namespace fovea {
namespace {

// The executor for which this thread works. A thread-local variable and not an argument: kernels need it deep
// inside, and an argument would pass through each of their functions.
thread_local const CancellableExecutor* current = nullptr;

class WorksFor {
 public:
  explicit WorksFor(const CancellableExecutor* executor) : before_(std::exchange(current, executor)) {}
  ~WorksFor() { current = before_; }
  WorksFor(const WorksFor&) = delete;
  WorksFor& operator=(const WorksFor&) = delete;

 private:
  const CancellableExecutor* before_;
};

}  // namespace

CancellableExecutor::CancellableExecutor(Executor& executor, std::stop_token token)
    : executor_(executor), stopped_([token = std::move(token)] { return token.stop_requested(); }) {}

CancellableExecutor::CancellableExecutor(Executor& executor, std::function<bool()> stopped)
    : executor_(executor), stopped_(std::move(stopped)) {}

void CancellableExecutor::parallel_for(std::int64_t count, ParallelBody body) {
  const WorksFor caller(this);
  throw_if_cancelled();
  const auto unit_or_stop = [&](std::int64_t unit, int worker) {
    const WorksFor thread_of_the_pool(this);
    throw_if_cancelled();
    body(unit, worker);
  };
  executor_.parallel_for(count, unit_or_stop);
}

void throw_if_cancelled() {
  if (current && current->stopped_()) throw Cancelled();
}

}  // namespace fovea
