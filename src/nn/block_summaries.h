// The few rows that stand for the rows of a block (nn/block_attention.h).
#pragma once

#include "fovea/nn/block_attention.h"

namespace fovea::nn {

/// The most rows of a page of a cache (Paged::page_size), and so the most pieces of a row.
inline constexpr std::int64_t most_of_page = 4096;

/// Of n blocks.
struct BlockAttention::Summaries {
  Var keys, values;  ///< [n, kept, heads * head_dim]
  Tensor log_sizes;  ///< [n, kept]: of the number of rows that each stands for
  Tensor places;     ///< [n, kept]: their mean position in the block
  Tensor shares;     ///< [n, kept, block]: how the weight of each is distributed among the rows
};

}  // namespace fovea::nn
