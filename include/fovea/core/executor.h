// Who runs parallel work. One executor is injected everywhere, so that a program has one pool, not one a
// library: the default is Fovea's own pool; layers on oneDNN install an OpenMP one (Debian's oneDNN links
// libgomp, and two pools would fight for the cores).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace fovea {

/// A borrowed callable: `void(unit, worker)`.
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
  /// Most workers that run at once; at least 1.
  virtual int thread_count() const noexcept = 0;
  /// Calls body(unit, worker) once for every unit in [0, count), in any order, worker in [0, thread_count());
  /// the caller works too. Returns when all are done; the first exception of a body is rethrown after that. A
  /// call from inside a body runs serially.
  virtual void parallel_for(std::int64_t count, ParallelBody body) = 0;
};

/// A pool of `threads` workers, the caller among them. Throws InvalidArgument for fewer than 1. In a process
/// forked from this one it works too, with threads that it starts there at the first call; a child that is
/// forked from inside a body must not return from that body.
std::unique_ptr<Executor> make_thread_pool(int threads);

/// Runs everything on the calling thread.
Executor& serial_executor() noexcept;

/// The process-wide executor: a pool as wide as the machine (cores this process may use), until somebody
/// installs another.
Executor& default_executor();

/// Makes `executor` the default; the caller keeps it alive until it installs another. nullptr restores
/// Fovea's own pool.
void set_default_executor(Executor* executor) noexcept;

}  // namespace fovea
