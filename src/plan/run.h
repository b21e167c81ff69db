// Runs one call whose views have been checked: a whole call or one entry of a packed batch. Also counts its
// bytes.
#pragma once

#include <cstddef>
#include <span>

#include "plan/call.h"
#include "plan/packed.h"

namespace fovea {

/// Bytes that are enough for every call of at most these sizes. `outputs`: the results that the calls write;
/// null: any.
std::size_t most_forward_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                               const AttentionOutputs* outputs);
/// Writes the results of a call without keys, where every row is fully masked.
void write_fully_masked(const AttentionPlan::Impl& plan, const AttentionOutputs& outputs);
/// Runs a call that has queries and keys.
void run_forward(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
                 const CallSizes& sizes, Executor& executor, std::span<std::byte> memory);

std::size_t most_backward_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                                LossOf loss_of);
void run_backward(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
                  const AttentionGradients& gradients, const CallSizes& sizes, Executor& executor,
                  std::span<std::byte> memory);

/// About how many multiply-adds the output of a call takes, whatever its mask. A tanh counts as 8.
inline double multiply_adds(const AttentionPlan::Impl& plan, const CallSizes& sizes) {
  const AttentionShape& s = plan.shape;
  const double pairs = static_cast<double>(sizes.batch * s.num_query_heads) *
                       static_cast<double>(sizes.query_len) * static_cast<double>(sizes.key_len);
  const auto mapped = [&](const RowMap& map, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
    if (map.matrix < 0) return 0.0;
    return static_cast<double>(sizes.batch * heads) * static_cast<double>(rows) *
           static_cast<double>(dim * plan.matrix_rows(map.matrix));
  };
  const double maps = mapped(plan.score().query, s.num_query_heads, sizes.query_len, s.head_dim) +
                      mapped(plan.score().key, s.num_kv_heads, sizes.key_len, s.key_dim);
  return maps + pairs * static_cast<double>((plan.additive() ? 8 * s.hidden : s.head_dim) + s.value_dim);
}

/// The sum over the entries of a packed batch, each with its own sizes.
inline double multiply_adds(const AttentionPlan::Impl& plan, const PackedBatch& batch) {
  double sum = 0.0;
  for (std::int64_t n = 0; n < batch.count(); ++n) sum += multiply_adds(plan, batch[n].sizes);
  return sum;
}

inline LossOf loss_of(const AttentionLoss& loss) {
  return loss.d_weights ? LossOf::weights : LossOf::output;
}

}  // namespace fovea
