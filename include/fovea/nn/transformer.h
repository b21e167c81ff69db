// The Transformer as blocks (Vaswani et al. 2017, arXiv 1706.03762): every model that is one, encoder,
// decoder or decoder alone, is a stack of the same layers and differs in its masks.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/nn/layers.h"

namespace fovea::nn {

/// Where layer norm stands: after the residual sum, as in the paper, or before each sub-layer, which trains
/// without warm-up (Xiong et al. 2020, arXiv 2002.04745).
enum class NormPlace : std::uint8_t { pre, post };

/// max(0, x W1 + b1) W2 + b2 (section 3.3). Names: fc1, fc2.
struct FeedForward {
  Linear first, second;
  FeedForward() = default;
  FeedForward(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t inner);
  Var operator()(Context& context, const Var& x) const;
};

struct StackOptions {
  std::int64_t layers = 2, dim = 64, feed_forward = 128, heads = 4;
  /// What a layer attends to besides its own sequence: nothing, or a memory (an encoder's output).
  enum class Reads : std::uint8_t { itself, memory };
  Reads reads = Reads::itself;
  NormPlace norm = NormPlace::pre;
  float dropout = 0.0f, attention_dropout = 0.0f;
  /// Rotary positions in the attention of the sequence to itself, for sequences up to so long; 0: none.
  std::int64_t rotary_positions = 0;
};

/// Layers of self-attention, attention to a memory where there is one, and a feed-forward part, each inside a
/// residual sum. Parameters as in Hugging Face's Marian: "<name>.layers.0.self_attn.q_proj.weight",
/// ".encoder_attn", ".fc1", ".fc2", "_layer_norm"; pre-norm ends with "<name>.layer_norm".
class TransformerStack {
 public:
  TransformerStack() = default;
  TransformerStack(ParameterSet& set, const std::string& name, const StackOptions& options);

  struct Call {
    Mask mask = Everything{};                    ///< of the sequence with itself
    std::span<const std::int64_t> lengths = {};  ///< for KeyLengths{} in `mask`: one a batch entry
    Var memory = {};                             ///< [B, M, dim], where the stack reads one
    Mask memory_mask = Everything{};
    std::span<const std::int64_t> memory_lengths = {};  ///< for KeyLengths{} in `memory_mask`
    /// Asked at every attention of every layer for where to leave its weights [B, heads, Lq, Lk]; null:
    /// nowhere. `place` is "self" or "memory".
    std::function<Tensor*(std::string_view place, std::size_t layer)> weights = {};
  };
  /// x [B, L, dim] -> [B, L, dim].
  Var operator()(Context& context, const Var& x, const Call& call) const;

  /// Keys and values of what was read so far, for inference row by row.
  struct Cache {
    std::vector<ProjectedKeys> self, memory;  ///< one a layer
    std::int64_t length = 0;                  ///< rows of the sequence that were read
    KeySpans forgotten = {};                  ///< those of them that `self` holds no more
    std::int64_t bytes() const;
  };
  /// An empty cache; `memory` [B, M, dim] is projected once, for all rows to come.
  Cache start(Context& context, const Var& memory = {}) const;
  /// The next n rows of the sequence, x [B, n, dim] -> [B, n, dim]: as operator() over all rows would give
  /// for these. Positions count from cache.length, so that Causal{} and windows mean what they mean there;
  /// call.memory is not read. `room` rows are allocated at first, and doubled when full.
  Var extend(Context& context, const Var& x, Cache& cache, const Call& call, std::int64_t room = 32) const;

  /// Drops from `cache` the rows that no row to come, up to position `until` of the sequence, sees under
  /// `mask`: what a decoder may forget follows from the mask as the work does. A window leaves a window,
  /// `(SlidingWindow{n} | GlobalTokens{...}) & Causal{}` also the global tokens, Causal{} everything.
  /// Afterwards `extend` takes `mask`, or another that hides what was dropped: one that does not throws
  /// InvalidArgument, and so does one that differs between heads or takes its lengths from the call. Rows
  /// move in place: copies of `cache` go with them.
  void forget(Cache& cache, const Mask& mask, std::int64_t until) const;

  std::size_t size() const noexcept { return layers_.size(); }

 private:
  struct Layer {
    MultiHeadAttention self;
    std::optional<MultiHeadAttention> memory;
    LayerNorm self_norm, memory_norm, final_norm;
    FeedForward feed_forward;
  };
  template <class Sublayer>
  Var residual(Context& context, const LayerNorm& norm, const Var& x, Sublayer&& sublayer) const;
  template <class Self, class Memory>
  Var run(Context& context, Var x, Self&& self, Memory&& memory) const;

  StackOptions options_;
  std::vector<Layer> layers_;
  LayerNorm norm_;
};

/// A sequence of any length as `queries` rows: learned queries that attend to it (Lee et al. 2019, arXiv
/// 1810.00825, "pooling by multi-head attention"). Names: query, and those of MultiHeadAttention.
struct AttentionPooling {
  Parameter* query = nullptr;  ///< [queries, dim]
  MultiHeadAttention attention;
  AttentionPooling() = default;
  AttentionPooling(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t num_heads,
                   std::int64_t queries = 1);
  /// x [B, L, dim], of which entry b has lengths[b] rows (none given: all) -> [B, queries, dim]. `weights`,
  /// if given, receives [B, heads, queries, L].
  Var operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths,
                 Tensor* weights = nullptr) const;
};

}  // namespace fovea::nn
