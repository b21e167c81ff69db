#include "bench/onednn.h"

#include <dlfcn.h>

#include <initializer_list>

namespace fovea::bench {

OneDnnProduct onednn_product(int threads) {
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"}) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    // A handle finds the names of the libraries that it needs as well, here those of OpenMP's run time.
    if (auto* set_threads = reinterpret_cast<void (*)(int)>(::dlsym(library, "omp_set_num_threads")))
      set_threads(threads);
    return reinterpret_cast<OneDnnProduct>(::dlsym(library, "dnnl_sgemm"));
  }
  return nullptr;
}

}  // namespace fovea::bench
