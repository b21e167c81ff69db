// The kernels of recurrences that this machine runs, as parameters of tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "recurrence/cases.h"

namespace fovea::testing {

inline std::vector<std::string> runnable_recurrence_kernels() {
  std::vector<std::string> names = list_recurrence_kernels();
  std::erase_if(names, [](const std::string& name) {
    try {
      make_recurrence_plan({}, {.len = 1, .key_dim = 1}, {.kernel = name});
    } catch (const InvalidArgument&) {
      return true;
    }
    return false;
  });
  return names;
}

inline std::string kernel_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

}  // namespace fovea::testing
