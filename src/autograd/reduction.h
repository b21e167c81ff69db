// The factor of term n of a loss: scale · weights[n], as ops.h defines Reduction. All losses take the factor
// from here.
#pragma once

#include <cstdint>
#include <string>

#include "fovea/autograd/ops.h"

namespace fovea::autograd {

class Share {
 public:
  /// Throws InvalidArgument unless there are no weights or `terms` of them.
  Share(const char* function, const Reduction& reduction, std::int64_t terms) : reduction_(reduction) {
    const auto count = static_cast<std::int64_t>(reduction.weights.size());
    if (count != 0 && count != terms)
      throw InvalidArgument(function, "reduction.weights", std::to_string(terms) + " weights or none",
                            std::to_string(count));
  }
  float operator()(std::int64_t n) const {
    return reduction_.scale *
           (reduction_.weights.empty() ? 1.0f : reduction_.weights[static_cast<std::size_t>(n)]);
  }

 private:
  const Reduction& reduction_;
};

}  // namespace fovea::autograd
