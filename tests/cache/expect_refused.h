// A test of what a call refuses.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "fovea/core/error.h"

namespace fovea {

/// `call` throws InvalidArgument, which names `argument` and says `says` somewhere.
inline void expect_refused(const std::function<void()>& call, const std::string& argument,
                           const std::string& says) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << argument;
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), argument) << error.what();
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

}  // namespace fovea
