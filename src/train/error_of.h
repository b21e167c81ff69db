// The error of one line among many, which must not end the others.
#pragma once

#include <exception>
#include <utility>

#include "fovea/core/cancellation.h"
#include "fovea/core/error.h"

namespace fovea::train {

/// What `run` throws of Error; null where it returns. Cancelled passes on: it is an error of the whole call.
template <class Run>
std::exception_ptr error_of(Run&& run) {
  try {
    std::forward<Run>(run)();
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace fovea::train
