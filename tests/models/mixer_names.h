// The mixers of a language model or a translator, as `--mixers` names them: all that there are, and mixtures.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "models/configs.h"

namespace fovea::testing {

/// Every mixer but attention, in the order of models::LayerMixer, from the list that messages print.
inline std::vector<std::string> all_mixers() {
  std::vector<std::string> names;
  std::istringstream list(models::mixer_names());
  for (std::string name; std::getline(list >> std::ws, name, ',');) {
    if (name != "attention") names.push_back(name);
  }
  return names;
}

/// Those that keep a state of one size. The others are attention to few rows of what is long ago.
inline std::vector<std::string> recurrences() {
  std::vector<std::string> names = all_mixers();
  std::erase_if(names, [](const std::string& name) {
    return !models::reads_both_sides(models::parse_mixers(name, 1).front());
  });
  return names;
}

inline std::vector<std::string> block_mixers() {
  std::vector<std::string> names = all_mixers();
  std::erase_if(names, [](const std::string& name) {
    return models::reads_both_sides(models::parse_mixers(name, 1).front());
  });
  return names;
}

inline auto mixer_names() {
  std::vector<std::string> names = recurrences();
  names.push_back("gated_delta,attention");
  return ::testing::ValuesIn(names);
}

inline auto language_mixer_names() {
  std::vector<std::string> names = all_mixers();
  names.insert(names.end(), {"gated_delta,attention", "pooled,gated_delta"});
  return ::testing::ValuesIn(names);
}

inline std::string test_name(const ::testing::TestParamInfo<std::string>& mixers) {
  std::string text = mixers.param;
  std::replace(text.begin(), text.end(), ',', '_');
  return text;
}

}  // namespace fovea::testing
