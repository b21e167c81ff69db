// A word as what it is made of, so that a model meets something known in a word it has never read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fovea::text {

struct WordFeatureOptions {
  std::int32_t buckets = 1 << 15;  ///< ids are hashes below this; few of them then share one
  int shortest = 3, longest = 4;   ///< lengths of the character n-grams; longest 0: none
};

/// Ids in [0, buckets) of, in this order: the word's shape ("Xx" for "Paris", "X.X." for "U.S.", "dddd" for
/// "1961"), the lower-cased word, and every n-gram of code points of "<paris>" in which digits count as 0
/// (Bojanowski et al. 2017, arXiv 1607.04606). Equal on every machine. Throws InvalidArgument for unusable
/// options, or a word that is empty or no UTF-8.
std::vector<std::int32_t> word_features(std::string_view word, const WordFeatureOptions& options = {});

}  // namespace fovea::text
