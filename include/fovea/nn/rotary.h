// Rotary positions of layers (attention/rope.h): a table that grows with the longest sequence.
#pragma once

#include <cstdint>
#include <memory>

#include "fovea/plan/rope.h"

namespace fovea::nn {

/// Cosines and sines for positions below a limit. They are computed when they are first needed: a model of
/// 131,072 positions would otherwise spend 67 MB on them, and a sentence needs a hundred. Copies share them.
/// Several threads may use one object.
class Rotary {
 public:
  /// A table that is there; its positions are the limit.
  Rotary(RopeTable table);  // NOLINT(google-explicit-constructor)
  /// Throws InvalidArgument where check_rope does, and for a limit below 1 or above 2^40.
  Rotary(const Rope& rope, std::int64_t limit);

  /// A table of at least `positions` positions, or of all there are if these are fewer: the rotation then
  /// refuses positions that the table lacks.
  RopeTable table(std::int64_t positions) const;
  std::int64_t limit() const noexcept;

 private:
  struct Growing;
  std::shared_ptr<Growing> growing_;
};

}  // namespace fovea::nn
