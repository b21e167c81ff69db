#pragma once

#include <string>

#include "fovea/attention/mask_definition.h"
#include "fovea/core/error.h"

namespace fovea {

/// Key j is visible to every query iff j < count. These first keys receive the weight that a query has no use
/// for, if the model was trained without a window. `Causal{} & (SlidingWindow{.lookback = 1023} |
/// StreamingSinks{4})` streams at the cost of a window (Xiao et al. 2023, arXiv 2309.17453, section 3.2). As
/// text `sinks(4)`. count >= 0.
struct StreamingSinks {
  std::int64_t count = 4;

  bool allows(const Site& site) const { return site.key < count; }
  BlockSpans spans(const QueryBlock& block) const {
    const std::int64_t end = std::min(count, block.key_len);
    const KeySpans first = end > 0 ? KeySpans{{0, end}} : KeySpans{};
    return {first, first};
  }
  std::string print() const { return "sinks(" + std::to_string(count) + ")"; }
  bool text_is_all() const { return true; }
  void validate() const {
    if (count < 0) throw InvalidArgument("StreamingSinks", "count", "at least 0", std::to_string(count));
  }
};

}  // namespace fovea
