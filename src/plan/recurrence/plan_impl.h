// RecurrencePlan::Impl: the spec and the shape of a plan, and the kernel that was chosen for it.
#pragma once

#include <cstdint>
#include <variant>

#include "fovea/plan/recurrence.h"
#include "kernels/recurrence/candidate.h"
#include "plan/recurrence/refusals.h"
#include "plan/rows.h"

namespace fovea {

/// The kind of a write, a decay or a read.
template <class Part>
auto kind_of(const Part& part) {
  return std::visit([]<class P>(const P&) { return P::kind; }, part);
}

struct RecurrencePlan::Impl {
  RecurrenceSpec spec;
  RecurrenceShape shape;  // value_dim filled in
  DType dtype = DType::f32;
  double scale = 1.0;
  const kernels::RecurrenceCandidate* candidate = nullptr;
  std::uint64_t hash = 0;    // hash_of the kernel and the spec, for stamps of saved states
  bool kernel_maps = false;  // the kernel itself makes features of queries and keys, and sums of keys
  KeptVector<RecurrenceRefusal> refusals;

  WriteKind write() const { return kind_of(spec.write); }
  DecayKind decay() const { return kind_of(spec.decay); }
  ReadKind read() const { return kind_of(spec.read); }
  bool maps_features() const { return !std::holds_alternative<IdentityFeatures>(spec.feature_map); }
  bool sums_keys() const { return std::holds_alternative<KeySum>(spec.normalizer); }
  double epsilon() const { return std::get<KeySum>(spec.normalizer).epsilon; }
  /// Columns of a state, and elements of a value as the kernels see it.
  std::int64_t columns() const { return shape.value_dim + (sums_keys() ? 1 : 0); }
  /// Whether kernels see copies of operands: features of queries and keys, values with a column of ones.
  bool copies() const { return (maps_features() || sums_keys()) && !kernel_maps; }
  DType compute_dtype() const { return wide_dtype(dtype); }
};

}  // namespace fovea
