// The one forward of all stacks of blocks (Vaswani et al. 2017, arXiv 1706.03762): every model that is a
// Transformer, encoder, decoder or decoder alone, differs in its blocks (blocks.h) and its masks.
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

/// The blocks of a spec, one after the other. Parameters as in Hugging Face's Marian:
/// "<name>.layers.0.self_attn.q_proj.weight", ".encoder_attn", ".fc1", ".fc2", and norms
/// "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm", those at the end of a sandwiched
/// branch "self_attn_end_norm", "encoder_attn_end_norm", "final_end_norm"; "<name>.layernorm_embedding",
/// "<name>.layer_norm".
class TransformerStack {
 public:
  TransformerStack() = default;
  /// A stack without blocks hands on what it reads, through the final norm where it has one. Throws what
  /// MultiHeadAttention throws.
  TransformerStack(ParameterSet& set, const std::string& name, const StackSpec& spec);

  const StackSpec& spec() const noexcept { return spec_; }
  /// What the first block reads: x [B, L, dim] with the positions `first`, `first` + 1, ... added, the
  /// embedding norm and dropout. Throws InvalidArgument for positions beyond the learned ones.
  Var enter(Context& context, const Var& x, std::int64_t first = 0) const;

  struct Call {
    Mask mask = Everything{};                    ///< of the sequence with itself
    std::span<const std::int64_t> lengths = {};  ///< for KeyLengths{} in `mask`: one a batch entry
    Var memory = {};                             ///< [B, M, dim], where the stack reads one
    Mask memory_mask = Everything{};
    std::span<const std::int64_t> memory_lengths = {};  ///< for KeyLengths{} in `memory_mask`
    /// Asked at every attention of every layer for where to leave its weights [B, heads, Lq, Lk]; null:
    /// nowhere. `place` is "self" or "memory".
    std::function<Tensor*(std::string_view place, std::size_t layer)> weights = {};
    /// Arguments of the mixers that come from the data, the same for all blocks.
    std::vector<autograd::AttentionArgument> arguments = {};
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
  // A branch with the norms around it.
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
