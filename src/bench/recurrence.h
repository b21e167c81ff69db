// The speed of recurrences, forward and backward, compared with the limits of this machine and with Fovea's
// own causal attention over the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fovea/core/dtype.h"
#include "fovea/recurrence/spec.h"

namespace fovea::bench {

struct RecurrenceBench {
  std::int64_t batch = 1, heads = 16, len = 2048;
  std::vector<std::int64_t> dims = {64, 128};  ///< key_dim and value_dim
  DType dtype = DType::f32;                    ///< of the rows; gates and states are f32
  std::int64_t repeat = 5;                     ///< runs, of which the best counts
  std::string kernel;                          ///< a kernel to force; empty: the best
  int threads = 1;
  /// Rows whose names contain this text; empty: all, and causal attention beside them.
  std::string only;
  /// One token: heads, and layers, each with states of its own. 32 heads of 128 by 128 in 64 layers are 128
  /// MiB.
  std::int64_t step_heads = 32, step_layers = 64;
};

struct NamedRecurrence {
  std::string name;
  RecurrenceSpec spec;
};
/// The recurrences that are measured: each write with the decays that papers give it.
const std::vector<NamedRecurrence>& measured_recurrences();
/// Whether `only` asks for the row of this name.
bool is_asked(const RecurrenceBench& bench, const std::string& name);

/// Seconds of one call. A limit is the largest of three times: products over the rate of multiply-adds,
/// exponentials over theirs, and bytes of operands over the rate of reading memory. For rows of bf16 the rate
/// is that of the best products of bf16.
struct RecurrenceRow {
  std::string name;
  std::int64_t dim = 0;
  double forward = 0.0, forward_limit = 0.0;
  double saving = 0.0;  ///< forward that saves states for backward; 0: not measured
  double backward = 0.0, backward_limit = 0.0;
  double again = 0.0;  ///< backward that computes states again; 0: not measured
};

/// Seconds of one token through all layers, on average of some that follow each other. The limit is that of
/// reading and writing every state once.
struct RecurrenceStepRow {
  std::string name;
  std::int64_t dim = 0;
  double seconds = 0.0, limit = 0.0;
};

/// The least floating-point operations of a token in one head: 2 for each multiply-add. Forward: two products
/// with the state of additive writes, three of delta and four of low-rank ones. Backward: twice as many.
double least_flops(const RecurrenceSpec& spec, std::int64_t key_dim, std::int64_t value_dim);

/// One row a recurrence and dimension. Rates are probed beside each row.
void measure_recurrences(const RecurrenceBench& bench, const std::function<void(const RecurrenceRow&)>& tell);

/// One row a recurrence and dimension: the states of all layers are updated where they are, one layer after
/// the other.
void measure_recurrence_steps(const RecurrenceBench& bench,
                              const std::function<void(const RecurrenceStepRow&)>& tell);

/// Mamba-1's scan in f32 over bench.len tokens, with softplus, skip and gate, forward and backward.
struct SelectiveScanBench {
  std::int64_t channels = 1536, state_dim = 16;
};
/// `dim` is the number of channels. The limits are those of RecurrenceRow. A token and channel need state_dim
/// exponentials, one for the softplus and one for the gate; backward needs them again.
RecurrenceRow measure_selective_scan(const RecurrenceBench& bench, const SelectiveScanBench& scan);

/// Seconds of causal attention of as many heads over `len` tokens.
double measure_causal_attention(const RecurrenceBench& bench, std::int64_t dim, std::int64_t len);

}  // namespace fovea::bench
