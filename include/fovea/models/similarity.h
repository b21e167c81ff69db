// How alike two vectors are, for a search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::models {

/// The similarities of sentence-transformers; the largest is the best in all of them.
enum class Similarity : std::uint8_t {
  cosine,     ///< the dot product of the vectors, each divided by its length
  dot,        ///< the dot product
  euclidean,  ///< minus the length of the difference
  manhattan   ///< minus the sum of the absolute values of the difference
};

/// "cosine", "dot", "euclidean" or "manhattan".
std::string_view to_string(Similarity similarity);

/// Of each row of f32 `passages` [passages, dim] to the f32 vector `query`, whose elements are dim. Throws
/// InvalidArgument for other shapes.
std::vector<double> similarities(Similarity similarity, const Tensor& query, const Tensor& passages);

/// The numbers of the largest scores, best first; of equal scores the first, NaN last. `count` of them at
/// most; 0: all.
std::vector<std::size_t> best_of(const std::vector<double>& scores, std::size_t count = 0);

}  // namespace fovea::models
