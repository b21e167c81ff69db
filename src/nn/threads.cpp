#include <memory>
#include <string>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/nn/module.h"

namespace fovea::nn {

void use_threads(int threads) {
  if (threads < 0) throw InvalidArgument("use_threads", "threads", "0 or more", std::to_string(threads));
  static std::unique_ptr<Executor> pool;
  std::unique_ptr<Executor> fresh = threads > 0 ? make_thread_pool(threads) : nullptr;
  set_default_executor(fresh.get());
  pool = std::move(fresh);  // the former pool's threads end here
}

}  // namespace fovea::nn
