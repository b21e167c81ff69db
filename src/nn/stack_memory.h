// The keys and values of the memory that a stack's cross-attention reads.
#pragma once

#include <vector>

#include "fovea/nn/stack_cache.h"

namespace fovea::nn {

struct StackCache::Memory {
  KvCache rows;
  std::vector<Sequence> entries;
};

}  // namespace fovea::nn
