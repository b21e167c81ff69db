// Ctrl-C in a long call: Python's signal handlers run while the engine works.
#pragma once

#include <functional>

#include "fovea/core/executor.h"

namespace fovea::python {

/// Calls work(executor) without the interpreter lock; call it with the lock held. Every 100 ms the calling
/// thread takes the lock and lets Python run the handlers of pending signals. An exception of a handler
/// (KeyboardInterrupt) cancels the work and is thrown here as nanobind::python_error. Python runs handlers in
/// its main thread alone, so a call from another thread checks once and never again.
void interruptible(const std::function<void(Executor&)>& work);

}  // namespace fovea::python
