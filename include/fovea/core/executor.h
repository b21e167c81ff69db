// Executors run parallel work. Every function takes the executor from its caller, so that a program has one
// thread pool instead of one a library. The default is Fovea's own pool.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace fovea {

/// A reference to a callable `void(unit, worker)`, which must outlive it.
class ParallelBody {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, ParallelBody>)
      ParallelBody(F&& body)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(&body))),
        call_([](void* object, std::int64_t unit, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(unit, worker);
        }) {}
  void operator()(std::int64_t unit, int worker) const { call_(object_, unit, worker); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, int);
};

class Executor {
 public:
  virtual ~Executor() = default;
  /// The largest number of workers that run at once; at least 1.
  virtual int thread_count() const noexcept = 0;
  /// Calls body(unit, worker) once for every unit in [0, count), in any order, with worker in [0,
  /// thread_count()). The calling thread works too. Returns when all units are done, and then rethrows the
  /// first exception of a body. A call from inside a body runs serially.
  virtual void parallel_for(std::int64_t count, ParallelBody body) = 0;
  /// Calls of fewer multiply-adds run on the calling thread alone (CallResources). By default all calls are
  /// shared out.
  virtual double least_shared_work() const noexcept { return 0.0; }
};

/// The least_shared_work that suits a thread pool. Calls of that size take 4 to 10 us. Every loop of a pool
/// waits until its threads have woken, which takes 18 to 30 us where they sleep.
inline constexpr double least_work_of_pools = 1 << 18;

/// A pool of `threads` workers, which include the calling thread. Throws InvalidArgument for fewer than 1.
/// The pool also works in a process forked from this one: it starts new threads there at the first call. A
/// child that is forked from inside a body must not return from that body.
std::unique_ptr<Executor> make_thread_pool(int threads);

/// Runs everything on the calling thread.
Executor& serial_executor() noexcept;

/// The process-wide executor. Unless another one was installed, it is a pool with one worker for each core
/// that this process may use.
Executor& default_executor();

/// Makes `executor` the default. The caller keeps it alive until it installs another. nullptr restores
/// Fovea's own pool.
void set_default_executor(Executor* executor) noexcept;

}  // namespace fovea
