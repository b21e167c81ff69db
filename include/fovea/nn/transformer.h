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
#include "fovea/nn/stack_cache.h"

namespace fovea::nn {

/// A feed-forward part of any kind.
struct FeedForward {
  Linear gate, first, second;  ///< `gate` has no weight where the part has none, and NoMlp has no weights
  autograd::Activation activation = autograd::Activation::relu;
  FeedForward() = default;
  FeedForward(ParameterSet& set, const std::string& name, std::int64_t dim, const Mlp& mlp);
  bool empty() const noexcept { return !first.weight; }
  /// x [..., dim] -> [..., dim].
  Var operator()(Context& context, const Var& x) const;
  /// Whether it takes rows of bf16, with the bits of the same rows in f32.
  bool takes_bf16(const Context& context) const;
};

/// The blocks of a spec, one after the other. A recurrence or block attention is named
/// "<name>.layers.0.mixer" in the place of "self_attn", and a recurrence from right to left ".mixer_back";
/// the names of norms stay. Parameters are named as in Hugging Face's Marian:
/// "<name>.layers.0.self_attn.q_proj.weight", ".encoder_attn", ".fc1", ".fc2". The norms are
/// "self_attn_layer_norm", "encoder_attn_layer_norm" and "final_layer_norm". The second norms of
/// NormPlace::sandwich are "self_attn_end_norm", "encoder_attn_end_norm" and "final_end_norm". The stack
/// itself has "<name>.layernorm_embedding", "<name>.project_in" and "<name>.layer_norm".
class TransformerStack {
 public:
  TransformerStack() = default;
  /// A stack without blocks returns its input, normalised if it has a final norm. Throws InvalidArgument for
  /// blocks that do not fit each other (StackSpec, BlockSpec), and what the layers throw.
  TransformerStack(ParameterSet& set, const std::string& name, const StackSpec& spec);

  const StackSpec& spec() const noexcept { return spec_; }
  /// The input of the first block: x [B, L, input_elements] plus the positions `first`, `first` + 1, ...,
  /// then the embedding norm, dropout, and the matrix of input_dim. Throws InvalidArgument for positions
  /// beyond the learned ones.
  Var enter(Context& context, const Var& x, std::int64_t first = 0) const;
  /// The same for a packed batch, x [1, L, input_elements]: the rows from starts[e] to starts[e + 1] have the
  /// positions first[e], first[e] + 1 and so on. Throws InvalidArgument also for starts that do not ascend
  /// from 0 to L, and unless `first` has one number for each entry.
  Var enter(Context& context, const Var& x, std::span<const std::int64_t> starts,
            std::span<const std::int64_t> first) const;

  struct Call {
    Mask mask = Everything{};                    ///< of the sequence with itself
    std::span<const std::int64_t> lengths = {};  ///< for KeyLengths{} in `mask`: one for each batch entry
    Var memory = {};                             ///< [B, M, dim], if the blocks have cross-attention
    Mask memory_mask = Everything{};
    std::span<const std::int64_t> memory_lengths = {};  ///< for KeyLengths{} in `memory_mask`
    /// For a packed batch (AttentionInputs in plan/plan.h) in a whole call: the sequences of x [1, L, dim]
    /// begin at these rows, and those of `memory` at memory_starts; [entries + 1] each. Every entry has its
    /// own positions in the mask, the mods and rotary positions.
    std::span<const std::int64_t> starts = {}, memory_starts = {};
    /// Called for every attention of every layer. Returns the tensor that receives its weights [B, heads, Lq,
    /// Lk], or null for none. `place` is "self" or "memory". Recurrences and block attention are called too,
    /// in whole calls alone. Behind a merging Lq and Lk count the rows that are left.
    std::function<Tensor*(std::string_view place, std::size_t layer)> weights = {};
    /// Called for every recurrence in whole calls, behind `weights`. Returns the tensor that receives the
    /// mean logarithm of each head's decay (RecurrentMixer::Call::log_decays), or null for none. Where a
    /// block sees both sides, those from right to left follow: [2 heads]. Its weights are the sum of both.
    std::function<Tensor*(std::size_t layer)> log_decays = {};
    /// Called for every attention of every layer, before it. Returns the arguments that come from the data:
    /// forgetting gates, centers. `rows` [B, L, dim] are the rows whose queries attend, normalised where the
    /// block begins with a norm, so that each layer can compute its own. Recorded arguments get gradients.
    std::function<std::vector<autograd::AttentionArgument>(std::string_view place, std::size_t layer,
                                                           const Var& rows)>
        arguments = {};
    /// For attentions by HardSample: returns the tensor that backward reads the advantage of each row from
    /// (MultiHeadAttention::Call::advantage), [B, heads, Lq], or an empty one for the attentions that have
    /// none. Its elements may be written when the loss is known.
    std::function<Tensor(std::string_view place, std::size_t layer)> advantage = {};
  };
  /// x [B, L, dim] -> [B, L, dim]. Throws InvalidArgument for masks that a block cannot have. They are those
  /// other than Causal{} where a recurrence or block attention sees the past, and other than Everything{} and
  /// KeyLengths{} where recurrences see both sides or rows are merged.
  ///
  /// With Activations::recomputed in the context of a training, memory is that of the blocks' inputs and of
  /// what one block keeps. The stack must then stay in its place until backward is done. The first block of
  /// RWKV-7 keeps everything, because later blocks read its values. Throws InvalidArgument where a block
  /// merges rows, and for a call with `arguments` or `advantage`: they come from outside the block.
  Var operator()(Context& context, const Var& x, const Call& call) const;

  using Cache = StackCache;
  /// A cache in which no row is read yet. `memory` [B, M, dim] is projected here, once for all rows.
  Cache start(Context& context, const Var& memory = {}, const StackCacheOptions& options = {}) const;
  /// The next n rows of every sequence, x [B, n, dim] -> [B, n, dim]. The result is that of operator() over
  /// all rows of a sequence. Positions count from the rows that an entry has read, so that Causal{} and
  /// windows mean the same as there. call.memory is not read. If it throws, the rows are not read: every
  /// sequence is as before. Attention by Coverage is the exception to the first promise: it counts the
  /// weights of the queries of one call (docs/cache.md).
  Var extend(Context& context, const Var& x, Cache& cache, const Call& call) const;

  /// Gives back memory of rows that no later row sees under `mask`, up to position `until` of the sequence:
  /// the pages all of whose rows are hidden (KvCache::drop). A window keeps a window, `(SlidingWindow{n} |
  /// GlobalTokens{...}) & Causal{}` keeps the global tokens too, and Causal{} keeps everything. Afterwards
  /// `extend` takes `mask`, or another mask that hides the dropped rows; it throws InvalidArgument for one
  /// that sees them. Throws InvalidArgument for a mask that differs between heads or takes its lengths from
  /// the call.
  void forget(Cache& cache, const Mask& mask, std::int64_t until) const;

  /// The rows that this stack puts into a cache, one layer for each block of each round. A recurrence puts in
  /// its state, as a LastRow. Behind them is a second layer for each block attention:
  /// BlockAttention::open_layer. Throws InvalidArgument for a stack that merges or compresses rows, or whose
  /// recurrences see both sides, because each row that it keeps would change with later ones.
  std::vector<CacheLayer> cache_layers(const CacheStore& store = Paged{}) const;
  /// Sequences of a caller's own cache, in which requests come and go: one for each entry of a batch.
  struct Sequences {
    KvCache& cache;  ///< of cache_layers
    std::span<Sequence* const> entries;
    /// For a packed batch: x is [1, L, dim], and entry e has its rows from starts[e] to starts[e + 1].
    std::span<const std::int64_t> starts = {};
    /// The ids of each entry's rows, for KvCache::start(ids); empty for an entry whose rows shall not be
    /// found. Or none at all.
    std::span<const std::span<const std::int32_t>> ids = {};
    /// Called with the result before rows are committed. If it throws, the sequences are as before.
    std::function<void(const Var&)> before_commit = {};
  };
  /// The same for those sequences, which may have different lengths and, packed, read different numbers of
  /// rows. Stacks without cross-attention alone.
  Var extend(Context& context, const Var& x, const Sequences& sequences, const Call& call) const;

  std::size_t size() const noexcept { return layers_.size(); }
  /// The recurrence of a layer that reads from left to right; null where the layer has attention.
  const RecurrentMixer* recurrence(std::size_t layer) const;
  /// The block attention of a layer; null where the layer has another mixer.
  const BlockAttention* block_attention(std::size_t layer) const;

 private:
  // The norms of a residual branch and where they stand.
  struct Branch {
    NormPlace place = NormPlace::pre;
    Norm norm, end;  // `end` of a sandwich
    float factor = 1.0f;
  };
  struct Layer {
    std::optional<MultiHeadAttention> self;
    std::optional<RecurrentMixer> recurrent;  // in the place of `self`
    std::optional<RecurrentMixer> back;       // beside it, from right to left
    std::optional<BlockAttention> blocks;     // in the place of `self`
    std::optional<MultiHeadAttention> memory;
    Branch self_branch, memory_branch, final_branch;
    FeedForward feed_forward;
    float dropout = 0.0f;
    std::optional<TokenMerging> merging;
    BlockSpec::Parts parts = BlockSpec::Parts::in_turn;
  };
  class Stream;
  static void add_branch(Context& context, const Branch& branch, float dropout, Stream& stream, const Var& y);
  struct Part;
  struct Reads;
  template <class Sublayer>
  static void residual(Context& context, const Part& part, Stream& stream, Sublayer&& sublayer);
  template <class Self, class Memory, class Merge>
  void run(Context& context, std::size_t i, Stream& x, Self&& self, Memory&& memory, Merge&& merge) const;
  template <class Self>
  void run_side_by_side(Context& context, std::size_t i, Stream& x, Self&& self) const;
  Var leave(Context& context, Stream x) const;
  struct Whole;
  void run(Context& context, std::size_t i, Stream& x, const Call& call, Whole& whole) const;
  Var run_recomputed(Context& context, Var x, const Call& call) const;
  bool reads_memory() const;
  bool merges_rows() const;
  static CacheLayer cache_layer(const Layer& layer, const CacheStore& store);
  std::int64_t open_layer(std::size_t layer) const;
  static void check_mask(const Layer& layer, const Mask& mask);
  static Var read_recurrent(Context& context, const Layer& layer, std::int64_t number, const Var& rows,
                            const Sequences& to, RecurrentMixer::Call call);
  Var enter_at(Context& context, const Var& x, std::span<const std::int64_t> positions) const;
  Var read(Context& context, const Var& x, const Sequences& to, const Call& call,
           const std::function<Var(const Layer&, std::size_t, const Var&)>& memory) const;

  StackSpec spec_;
  bool made_ = false;  // not by the default constructor
  std::vector<Layer> layers_;
  std::optional<Norm> embedding_norm_, norm_;
  Linear projection_;               // of StackSpec::input_dim
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
