// A word as a set of its parts, so that a model knows some parts of a word that it has never read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fovea::text {

struct WordFeatureOptions {
  std::int32_t buckets = 1 << 15;  ///< ids are hashes below this; with this default few features share an id
  int shortest = 3, longest = 4;   ///< lengths of the character n-grams; longest 0: none
};

/// Ids in [0, buckets). First comes the word's shape ("Xx" for "Paris", "X.X." for "U.S.", "dddd" for
/// "1961"), then the lower-cased word. Then follow all n-grams of the code points of "<paris>", digits
/// replaced by 0 (Bojanowski et al. 2017, arXiv 1607.04606). Equal on every machine. Throws InvalidArgument
/// for unusable options, and for a word that is empty or not UTF-8.
std::vector<std::int32_t> word_features(std::string_view word, const WordFeatureOptions& options = {});

}  // namespace fovea::text
