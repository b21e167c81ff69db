// Plans of attention for a caller that calls in a loop.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "fovea/plan/plan.h"

namespace fovea::autograd {

/// Whether a plan of one spec serves the other. Masks and mods are compared as Mask and Mod do.
bool are_same(const AttentionSpec& a, const AttentionSpec& b);

/// The plans of the last four specs and shapes. Several threads may use one object.
class PlanCache {
 public:
  /// The plan of this spec and shape, made if it is not kept. Throws what make_plan throws.
  AttentionPlan of(const AttentionSpec& spec, const AttentionShape& shape, const PlanOptions& options = {});
  /// How many plans were made: a loop over equal specs and shapes makes one.
  std::int64_t made() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t made_ = 0;
  /// @cond
  struct Made {
    AttentionPlan plan;
    PlanOptions options;
  };
  /// @endcond
  std::array<std::optional<Made>, 4> plans_;  // the last used first
};

}  // namespace fovea::autograd
