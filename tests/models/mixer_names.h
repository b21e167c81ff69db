// The mixers of a language model or a translator, as `--mixers` names them: every recurrence, and mixtures
// with attention. Those of a language model may also be attention to few rows of what is long ago.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace fovea::testing {

inline auto mixer_names() {
  return ::testing::Values("linear", "retention", "gla", "gated_delta", "mamba2", "mamba", "rwkv7",
                           "performer", "gated_delta,attention");
}

inline auto language_mixer_names() {
  return ::testing::Values("linear", "retention", "gla", "gated_delta", "mamba2", "mamba", "rwkv7",
                           "performer", "gated_delta,attention", "pooled", "linformer", "merging",
                           "pooled,gated_delta");
}

inline std::string test_name(const ::testing::TestParamInfo<const char*>& mixers) {
  std::string text = mixers.param;
  std::replace(text.begin(), text.end(), ',', '_');
  return text;
}

}  // namespace fovea::testing
