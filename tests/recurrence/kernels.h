// The kernels of recurrences that this machine runs, as parameters of tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "recurrence/cases.h"

namespace fovea::testing {

/// Whether this machine has the kernel, and the kernel takes operands of this dtype.
inline bool runs(const std::string& kernel, DType dtype) {
  try {
    make_recurrence_plan({}, {.len = 1, .key_dim = 1}, {.dtype = dtype, .kernel = kernel});
  } catch (const InvalidArgument&) {
    return false;
  }
  return true;
}

inline std::vector<std::string> runnable_recurrence_kernels() {
  std::vector<std::string> names = list_recurrence_kernels();
  std::erase_if(names,
                [](const std::string& name) { return !runs(name, DType::f32) && !runs(name, DType::bf16); });
  return names;
}

/// f32, or bf16 for a kernel that takes nothing else.
inline DType dtype_for(const std::string& kernel) {
  return runs(kernel, DType::f32) ? DType::f32 : DType::bf16;
}

inline std::string kernel_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

}  // namespace fovea::testing
