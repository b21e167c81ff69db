// How far two results are apart, and what a call refuses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "fovea/core/error.h"
#include "fovea/core/tensor.h"

namespace fovea::nn {

inline float largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  float largest = 0.0f;
  for (std::int64_t i = 0; i < a.count(); ++i)
    largest = std::max(largest, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  return largest;
}

/// `call` throws InvalidArgument, which names `argument`.
inline void expect_refused(const std::function<void()>& call, const std::string& argument) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << argument;
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), argument) << error.what();
  }
}

}  // namespace fovea::nn
