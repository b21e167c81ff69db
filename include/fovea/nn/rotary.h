// Rotary positions of layers (attention/rope.h): a table that grows with the longest sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "fovea/plan/rope.h"

namespace fovea::nn {

/// Cosines and sines for positions below a limit. They are computed when they are first needed: a model of
/// 131,072 positions would otherwise spend 67 MB on them, and a sentence needs a hundred. Copies share them.
/// Several threads may use one object. Scalings that read a length get that of each sequence.
class Rotary {
 public:
  /// A table that is there; its positions are the limit.
  Rotary(RopeTable table);  // NOLINT(google-explicit-constructor)
  /// Throws InvalidArgument where check_rope does, and for a limit below 1 or above 2^40.
  Rotary(const Rope& rope, std::int64_t limit);

  /// A table of at least `positions` positions, or of all there are if these are fewer: the rotation then
  /// refuses positions that the table lacks.
  RopeTable table(std::int64_t positions) const;
  /// The same for several sequences of `lengths` positions. Where the frequencies of some differ, their rows
  /// stand one behind the other in the table, and first[i] is moved to where those of sequence i are.
  RopeTable table(std::span<const std::int64_t> lengths, std::span<std::int64_t> first) const;
  /// fovea::changes_behind: longer sequences have other frequencies. Nothing where the limit comes before.
  std::optional<std::int64_t> changes_behind() const noexcept;
  std::int64_t limit() const noexcept;

 private:
  struct Growing;
  std::shared_ptr<Growing> growing_;
};

}  // namespace fovea::nn
