// Few rows in the place of the many that attention would read: its keys and values are then made of the few,
// and its cost grows with query_len × kept. Each kind is an option of attention
// (AttentionOptions::compression), so any block of a stack may have one. Rows made of several rows have no
// position, and a row made of all rows sees the future. So such attention is for sequences that are read
// from both sides.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "fovea/core/kept_vector.h"
#include "fovea/nn/module.h"

namespace fovea::nn {

struct AttentionPooling;

/// Linformer (Wang et al. 2020, arXiv 2006.04768, equation 7): keys are made of E x, values of F x. All heads
/// of a layer share one E and one F. Their columns belong to positions. So no sequence may be longer than
/// `longest`, and a shorter one uses their first columns. The products E x are made before the projections.
/// That is the paper's E (x W), but for the biases of the projections, and it is cheaper.
/// Parameters: "<name>.e" and "<name>.f", [kept, longest].
struct LinformerRows {
  std::int64_t kept = 128, longest = 512;
};
/// The mean of each `group` neighbours. A last group that is smaller has less weight: like merged tokens, its
/// score grows by the logarithm of its size.
struct MeanRows {
  std::int64_t group = 4;
};
/// Rows 0, stride, 2·stride, ...
struct StridedRows {
  std::int64_t stride = 4;
};
/// What `kept` learned queries read of all rows: the induced set attention block of Lee et al. 2019, arXiv
/// 1810.00825, equations 9 and 10, without its feed-forward parts. Parameters: those of AttentionPooling
/// (transformer.h) of that name.
struct LearnedRows {
  std::int64_t kept = 32, num_heads = 1;
};
using Compression = std::variant<LinformerRows, MeanRows, StridedRows, LearnedRows>;

/// "linformer", "mean", "strided" or "learned".
const char* name_of(const Compression& compression);

/// Makes the rows of which attention makes its keys and values.
class RowCompressor {
 public:
  /// Throws InvalidArgument for sizes below 1, and for heads that do not divide `dim`.
  RowCompressor(ParameterSet& set, const std::string& name, std::int64_t dim, const Compression& options);

  struct Rows {
    Var keys, values;                       ///< [B, kept, dim]
    KeptVector<std::int64_t> lengths = {};  ///< rows of each entry; empty: all
    Tensor log_sizes = {};                  ///< [B, kept], for MultiHeadAttention::Call; empty: all are equal
  };
  /// x [B, L, dim], of which entry b has lengths[b] rows; without `lengths` all L. Throws InvalidArgument for
  /// more rows than LinformerRows::longest, and for lengths outside [0, L].
  Rows operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths = {}) const;

  const Compression& options() const noexcept { return options_; }

 private:
  Compression options_;
  Parameter *keys_ = nullptr, *values_ = nullptr;    // of LinformerRows
  std::shared_ptr<const AttentionPooling> pooling_;  // of LearnedRows
};

}  // namespace fovea::nn
