// Causal attention that reads what is long ago as few rows. A row reads its own block of a sequence exactly,
// up to itself. Of every block before it reads a few rows, which stand for all rows of that block. So no
// row sees a later one, and a sequence that is written keeps few rows for each block. blocks.h puts such
// layers into stacks, beside attention and recurrences. compression.h has the forms that see both sides.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/autograd/plan_cache.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/rotary.h"

namespace fovea::nn {

/// The segment-wise form of Transformer-LS (Zhu et al. 2021, arXiv 2107.02192). It is also the
/// compressed branch of Native Sparse Attention (Yuan et al. 2025, arXiv 2502.11089, section 3.3.1). Rows of
/// a sequence stand in blocks of `block`. A query reads `kept` rows of every block before its own, and the
/// rows of its own block up to itself. All are under one softmax.
struct BlockAttentionOptions {
  std::int64_t num_heads = 1;
  std::int64_t head_dim = 0;  ///< of queries, keys and values; 0: dim / num_heads
  /// `kept` divides `block`, and block / kept is a power of 2.
  std::int64_t block = 64, kept = 16;
  /// What keys and values of a block are made of, behind their projections and rotations.
  enum class By : std::uint8_t {
    means,     ///< of block / kept neighbours
    sums,      ///< K' = E K and V' = F V, learned (Linformer: Wang et al. 2020, arXiv 2006.04768)
    mergings,  ///< in turn half of the rows join others (ToMe: Bolya et al. 2022, arXiv 2210.09461)
  };
  By by = By::means;
  std::optional<Rotary> rope = {};  ///< rotates queries and keys by their positions
  /// Whether the score falls by slope·distance (Press et al. 2022, arXiv 2108.12409), with a learned slope
  /// for each head. A summary row is at the mean position of its rows.
  enum class Alibi : std::uint8_t { without, with };
  Alibi alibi = Alibi::without;
};

/// "pooled", "linformer" or "merging": the name of the mixer in configs and options of commands.
const char* name_of(BlockAttentionOptions::By by);

/// One layer. A mean and a merged row count as often as the rows that they stand for: their score grows by
/// the logarithm of that number (Bolya et al., equation 1). So where the rows of a mean are equal, this is
/// full attention. Parameters: q_proj, k_proj, v_proj, out_proj; e and f [kept, block] of By::sums; slope
/// [num_heads] with ALiBi.
class BlockAttention {
 public:
  /// Throws InvalidArgument for sizes below 1, and for those that do not divide as they must.
  BlockAttention(ParameterSet& set, const std::string& name, std::int64_t dim,
                 const BlockAttentionOptions& options);

  struct Call {
    /// For a packed batch, x [1, L, dim]: sequence n has the rows from starts[n] to starts[n + 1].
    std::span<const std::int64_t> starts = {};
    /// If given, receives [B, num_heads, L, L] in calls without starts. The weight of a row that stands for
    /// several is distributed among them.
    Tensor* weights = nullptr;
  };
  /// x [B, L, dim] -> [B, L, dim]. A row depends on the rows before it in its sequence, and on itself. Throws
  /// InvalidArgument for other shapes, and for weights beside starts.
  Var operator()(Context& context, const Var& x, const Call& call) const;

  /// What a sequence keeps of finished blocks, in pages: `kept` rows of each, cut into pieces, one for each
  /// token. `store` gives the size of pages.
  CacheLayer finished_layer(const CacheStore& store = Paged{}) const;
  /// The rows of the block that is not finished, in a LastRow.
  CacheLayer open_layer() const;
  struct Cached {
    KvCache& cache;
    std::int64_t finished = 0, open = 0;        ///< the numbers of those two layers in the cache
    std::span<Sequence* const> sequences;       ///< with room for the rows (KvCache::reserve)
    std::span<const std::int64_t> starts = {};  ///< of a packed batch, as in Call
  };
  /// The next rows of each sequence, which become pending rows of the cache: x [B, n, dim], or packed [1, L,
  /// dim]. Gives what a call over all rows gives, by rounding: with By::mergings near ties may then merge
  /// other rows, unless products are computed by row or weights are packed. Not recorded.
  Var extend(Context& context, const Var& x, const Cached& to) const;

  const BlockAttentionOptions& options() const noexcept { return options_; }  ///< every size filled in

 private:
  struct Summaries;
  class Reader;
  Summaries summarized(Context& context, const Var& keys, const Var& values) const;
  Var whole(Context& context, const Var& x, Tensor* weights) const;
  Var attend(Context& context, autograd::AttentionCall& call, const Tensor& log_sizes,
             const Tensor& positions, const AttentionShape& shape, const AttentionSpec& spec, const Var& q,
             const Var& k, const Var& v) const;
  std::int64_t group() const noexcept { return options_.block / options_.kept; }
  std::int64_t width() const noexcept { return options_.num_heads * options_.head_dim; }
  std::int64_t row_size() const noexcept;

  BlockAttentionOptions options_;
  Linear query_, key_, value_, output_;
  Parameter *key_sums_ = nullptr, *value_sums_ = nullptr, *slope_ = nullptr;
  AttentionSpec by_row_{.mask = Causal{}}, whole_;  // of calls with a cache, and without one
  std::shared_ptr<autograd::PlanCache> plans_;      // of copies too
};

}  // namespace fovea::nn
