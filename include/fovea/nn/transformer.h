// The forward of a stack of blocks (Vaswani et al. 2017, arXiv 1706.03762). Encoders, decoders and
// decoder-only models all use it; they differ in their blocks (blocks.h) and their masks.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/nn/blocks.h"

namespace fovea::nn {

/// A feed-forward part of either kind.
struct FeedForward {
  Linear gate, first, second;  ///< `gate` has no weight where the part has none
  autograd::Activation activation = autograd::Activation::relu;
  FeedForward() = default;
  FeedForward(ParameterSet& set, const std::string& name, std::int64_t dim, const Mlp& mlp);
  Var operator()(Context& context, const Var& x) const;
};

/// The blocks of a spec, one after the other. Parameters are named as in Hugging Face's Marian:
/// "<name>.layers.0.self_attn.q_proj.weight", ".encoder_attn", ".fc1", ".fc2". The norms are
/// "self_attn_layer_norm", "encoder_attn_layer_norm" and "final_layer_norm". The second norms of
/// NormPlace::sandwich are "self_attn_end_norm", "encoder_attn_end_norm" and "final_end_norm". The stack
/// itself has "<name>.layernorm_embedding" and "<name>.layer_norm".
class TransformerStack {
 public:
  TransformerStack() = default;
  /// A stack without blocks returns its input, normalised if it has a final norm. Throws what
  /// MultiHeadAttention throws.
  TransformerStack(ParameterSet& set, const std::string& name, const StackSpec& spec);

  const StackSpec& spec() const noexcept { return spec_; }
  /// The input of the first block: x [B, L, dim] plus the positions `first`, `first` + 1, ..., then the
  /// embedding norm and dropout. Throws InvalidArgument for positions beyond the learned ones.
  Var enter(Context& context, const Var& x, std::int64_t first = 0) const;

  struct Call {
    Mask mask = Everything{};                    ///< of the sequence with itself
    std::span<const std::int64_t> lengths = {};  ///< for KeyLengths{} in `mask`: one for each batch entry
    Var memory = {};                             ///< [B, M, dim], if the blocks have cross-attention
    Mask memory_mask = Everything{};
    std::span<const std::int64_t> memory_lengths = {};  ///< for KeyLengths{} in `memory_mask`
    /// Called for every attention of every layer. Returns the tensor that receives its weights [B, heads, Lq,
    /// Lk], or null for none. `place` is "self" or "memory".
    std::function<Tensor*(std::string_view place, std::size_t layer)> weights = {};
    /// Arguments of the mixers that come from the data, the same for all blocks.
    std::vector<autograd::AttentionArgument> arguments = {};
  };
  /// x [B, L, dim] -> [B, L, dim].
  Var operator()(Context& context, const Var& x, const Call& call) const;

  /// Keys and values of the rows read so far, for inference row by row.
  struct Cache {
    std::vector<ProjectedKeys> self, memory;  ///< one for each layer
    std::int64_t length = 0;                  ///< rows of the sequence read so far
    KeySpans forgotten = {};                  ///< rows that `self` holds no more
    std::int64_t bytes() const;
  };
  /// An empty cache. `memory` [B, M, dim] is projected here, once for all rows.
  Cache start(Context& context, const Var& memory = {}) const;
  /// The next n rows of the sequence, x [B, n, dim] -> [B, n, dim]. The result is that of operator() over all
  /// rows. Positions count from cache.length, so that Causal{} and windows mean the same as there.
  /// call.memory is not read. `room` rows are allocated at first; the capacity doubles when it is full.
  Var extend(Context& context, const Var& x, Cache& cache, const Call& call, std::int64_t room = 32) const;

  /// Drops the rows of `cache` that no later row sees under `mask`, up to position `until` of the sequence. A
  /// window keeps a window, `(SlidingWindow{n} | GlobalTokens{...}) & Causal{}` keeps the global tokens too,
  /// and Causal{} keeps everything. Afterwards `extend` takes `mask`, or another mask that hides the dropped
  /// rows. Both functions throw InvalidArgument for a mask that differs between heads or takes its lengths
  /// from the call. `extend` also throws it for a mask that sees a dropped row. Rows move in place, also in
  /// copies of `cache`, which share them.
  void forget(Cache& cache, const Mask& mask, std::int64_t until) const;

  std::size_t size() const noexcept { return layers_.size(); }

 private:
  // The norms of a residual branch and where they stand.
  struct Branch {
    NormPlace place = NormPlace::pre;
    Norm norm, end;  // `end` of a sandwich
  };
  struct Layer {
    MultiHeadAttention self;
    std::optional<MultiHeadAttention> memory;
    Branch self_branch, memory_branch, final_branch;
    FeedForward feed_forward;
    float dropout = 0.0f;
  };
  template <class Sublayer>
  Var residual(Context& context, const Branch& branch, float dropout, const Var& x,
               Sublayer&& sublayer) const;
  template <class Self, class Memory>
  Var run(Context& context, Var x, Self&& self, Memory&& memory) const;
  bool reads_memory() const;

  StackSpec spec_;
  std::vector<Layer> layers_;
  std::optional<Norm> embedding_norm_, norm_;
  Parameter* positions_ = nullptr;  // of LearnedPositions
};

/// Makes `queries` rows of a sequence of any length: learned queries attend to it (Lee et al. 2019, arXiv
/// 1810.00825, "pooling by multi-head attention"). Names: query, and those of MultiHeadAttention.
struct AttentionPooling {
  Parameter* query = nullptr;  ///< [queries, dim]
  MultiHeadAttention attention;
  AttentionPooling() = default;
  AttentionPooling(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t num_heads,
                   std::int64_t queries = 1);
  /// x [B, L, dim] -> [B, queries, dim]. Entry b has lengths[b] rows; without `lengths` all L. `weights`, if
  /// given, receives [B, heads, queries, L].
  Var operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths,
                 Tensor* weights = nullptr) const;
};

}  // namespace fovea::nn
