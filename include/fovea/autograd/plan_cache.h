// Plans of attention for a caller that calls in a loop.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "fovea/plan/plan.h"

namespace fovea::autograd {

/// The plans of the last four masks and shapes. One object serves one spec, of which the mask and the dropout
/// may change from call to call. Several threads may use it.
class PlanCache {
 public:
  AttentionPlan of(const AttentionSpec& spec, const AttentionShape& shape, const PlanOptions& options = {});
  /// How many plans were made: a loop over equal masks and shapes makes one.
  std::int64_t made() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t made_ = 0;
  std::array<std::optional<AttentionPlan>, 4> plans_;  // the last used first
};

}  // namespace fovea::autograd
