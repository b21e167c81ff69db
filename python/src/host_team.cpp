#include "host_team.h"

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#if __has_include(<link.h>)
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <cstring>
#include <string>
#endif

#include "fovea/core/executor.h"

namespace fovea::python {
namespace {

// The functions of an OpenMP runtime. GOMP_parallel is what GCC's compiled programs call; the runtimes of
// LLVM and Intel have it too, for such programs.
struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr, (*most_threads)() = nullptr, (*in_parallel)() = nullptr;
};

std::atomic<const OpenMp*> openmp{nullptr};  // null until it is found

// Set in a process that was forked from one with this module. The threads of a runtime do not exist there,
// and GCC's runtime waits for them for ever.
std::atomic<bool> forked{false};

// The runtime, if PyTorch uses as many threads. With another number it would end threads and start others at
// each change between PyTorch's operations and ours.
const OpenMp* team_of(int threads) {
  const OpenMp* found = openmp.load(std::memory_order_acquire);
  const bool serves = found && !forked.load(std::memory_order_relaxed) && found->most_threads() == threads;
  return serves ? found : nullptr;
}

// Set while this thread runs a body.
thread_local bool inside_body = false;

// A call's units, which the threads of a team take one by one.
struct Shared {
  const ParallelBody& body;
  const std::int64_t count;
  int (*thread_number)();
  std::atomic<std::int64_t> next{0};
  std::mutex mutex = {};
  std::exception_ptr failure = nullptr;

  void drain() {
    inside_body = true;
    try {
      const int worker = thread_number();
      for (std::int64_t unit; (unit = next.fetch_add(1, std::memory_order_relaxed)) < count;)
        body(unit, worker);
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    inside_body = false;
  }
};

class HostTeam final : public Executor {
 public:
  explicit HostTeam(int threads) : own_(make_thread_pool(threads)), pool_(*own_) {}
  explicit HostTeam(Executor& pool) : pool_(pool) {}
  int thread_count() const noexcept override { return pool_.thread_count(); }

  void parallel_for(std::int64_t count, ParallelBody body) override {
    if (count <= 0) return;
    const int threads = thread_count();
    if (count == 1 || threads == 1 || inside_body) return serial_executor().parallel_for(count, body);
    const OpenMp* found = team_of(threads);
    if (!found || found->in_parallel()) return pool_.parallel_for(count, body);
    Shared shared{body, count, found->thread_number};
    found->parallel([](void* of) { static_cast<Shared*>(of)->drain(); }, &shared,
                    static_cast<unsigned>(threads), 0);
    if (shared.failure) std::rethrow_exception(shared.failure);
  }

 private:
  std::unique_ptr<Executor> own_;
  Executor& pool_;
};

#if __has_include(<link.h>)
// The runtime that PyTorch is linked to, which need not be the only one in the process.
bool find(OpenMp& into) {
  std::string torch;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* path) {
        const char* name = object->dlpi_name ? object->dlpi_name : "";
        if (!std::strstr(name, "libtorch_cpu.so")) return 0;
        *static_cast<std::string*>(path) = name;
        return 1;
      },
      &torch);
  void* handle = torch.empty() ? nullptr : dlopen(torch.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return false;
  const auto take = [handle]<class F>(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(handle, name));
    return function != nullptr;
  };
  // The handle is kept: the runtime must not be unloaded before its last call.
  return take(into.parallel, "GOMP_parallel") && take(into.thread_number, "omp_get_thread_num") &&
         take(into.most_threads, "omp_get_max_threads") && take(into.in_parallel, "omp_in_parallel");
}

[[maybe_unused]] const int handler_registered =
    pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
#else
bool find(OpenMp&) {
  return false;
}
#endif

}  // namespace

bool join_threads_of_torch() {
  static OpenMp functions;
  static const bool found = find(functions);
  if (!found) return false;
  static HostTeam team(default_executor());  // a HostTeam too, if set_num_threads has been called
  static const bool joined = [] {
    openmp.store(&functions, std::memory_order_release);
    set_default_executor(&team);
    return true;
  }();
  return joined;
}

double least_shared_work() {
  return team_of(default_executor().thread_count()) ? 2 << 16 : least_work_of_pools;
}

void set_num_threads(int threads) {
  static std::mutex mutex;
  // Kept: a call on another thread may still be running on the one before.
  static std::map<int, std::unique_ptr<Executor>> teams;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Executor>& team = teams[threads];
  if (!team) {
    try {
      team = std::make_unique<HostTeam>(threads);
    } catch (...) {
      teams.erase(threads);
      throw;
    }
  }
  set_default_executor(team.get());
}

}  // namespace fovea::python
