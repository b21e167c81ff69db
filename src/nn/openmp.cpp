#include <malloc.h>
#include <omp.h>

#include <atomic>
#include <exception>
#include <mutex>

#include "fovea/core/executor.h"
#include "fovea/nn/module.h"

namespace fovea::nn {
namespace {

class OpenMpExecutor final : public Executor {
 public:
  int thread_count() const noexcept override { return omp_get_max_threads(); }
  void parallel_for(std::int64_t count, ParallelBody body) override {
    if (count <= 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
      return serial_executor().parallel_for(count, body);
    }
    std::exception_ptr failure;
    std::mutex mutex;
    std::atomic<bool> failed{false};
#pragma omp parallel for schedule(dynamic, 1)
    for (std::int64_t unit = 0; unit < count; ++unit) {
      if (failed.load(std::memory_order_relaxed)) continue;
      try {  // an exception must not leave the parallel region
        body(unit, omp_get_thread_num());
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }
};

}  // namespace

void use_openmp(int threads) {
  static OpenMpExecutor executor;
  if (threads > 0) omp_set_num_threads(threads);
  set_default_executor(&executor);
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

}  // namespace fovea::nn
