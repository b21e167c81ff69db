// The description of a stack of layers, as plain values. Every Transformer is one StackSpec, be it an
// encoder, a decoder or decoder-only, whatever its norms, activations, positions and scores. One forward runs
// them all (transformer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "fovea/nn/attention.h"
#include "fovea/nn/block_attention.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/recurrent_mixer.h"

namespace fovea::nn {

/// Where the norms of one residual branch stand. x is the branch's input row, f the branch.
enum class NormPlace : std::uint8_t {
  pre,       ///< x + f(norm(x)): trains without warm-up (Xiong et al. 2020, arXiv 2002.04745)
  post,      ///< norm(x + f(x)): Vaswani et al. 2017
  sandwich,  ///< x + norm(f(norm(x))): Gemma 2
  end,       ///< x + norm(f(x)): OLMo 2
  none       ///< x + f(x)
};
/// "pre", "post", "sandwich", "end" or "none".
const char* name_of(NormPlace place);

/// activation(x W1 + b1) W2 + b2 (Vaswani et al. 2017, section 3.3). Parameters: fc1, fc2.
struct PlainMlp {
  std::int64_t inner = 128;
  autograd::Activation activation = autograd::Activation::relu;
  Linear::Bias bias = Linear::Bias::with;
};
/// (activation(x Wg) ∘ (x W1)) W2, with biases or without (Shazeer 2020, arXiv 2002.05202; at SiLU the SwiGLU
/// of Llama). Parameters: gate, fc1, fc2.
struct GatedMlp {
  std::int64_t inner = 128;
  autograd::Activation activation = autograd::Activation::silu;
  Linear::Bias bias = Linear::Bias::without;
};
/// The block ends behind its mixer, or its cross-attention, as those of Mamba do. No parameters, and no norm.
struct NoMlp {};
using Mlp = std::variant<PlainMlp, GatedMlp, NoMlp>;

/// Which rows a row sees: causal attention, or bidirectional.
enum class Sees : std::uint8_t { the_past, both_sides };

/// The part of a block in which rows of a sequence exchange information: attention, a recurrence, or
/// attention to few rows of what is long ago. A stack may have any of them in each of its blocks.
using Mixer = std::variant<AttentionOptions, RecurrentOptions, BlockAttentionOptions>;
/// "attention", or the name_of the other two.
const char* mixer_name(const Mixer& mixer);

/// Token merging (Bolya et al. 2022, arXiv 2210.09461, section 3): behind its mixer a block merges rows whose
/// keys are alike (autograd::matched_groups of the keys' mean over the heads). Later blocks read the rows
/// that are left, each of which counts as often as the rows that it stands for. At the end every row of the
/// sequence gets the row that it was merged into. Blocks behind a merging have plain attention: no mask but
/// KeyLengths{}, no mods and no rotary positions.
struct TokenMerging {
  double share = 0.25;  ///< of the rows that the block reads, in [0, 0.5]: so many of them join another
};

/// One block: a mixer, cross-attention to a memory if there is one, and a feed-forward part unless it is
/// NoMlp. Each is a residual branch.
struct BlockSpec {
  /// What the feed-forward part reads. `in_turn`: the rows to which the mixer has added its own.
  /// `side_by_side`: the block's input, as the mixer does, x + mixer(norm(x)) + mlp(norm(x)) (GPT-J, Wang &
  /// Komatsuzaki 2021; Chowdhery et al. 2022, arXiv 2204.02311, section 2). Then mixer_norm is pre. mlp_norm
  /// is pre for a norm of its own, as GPT-NeoX has, or none for the rows that are normalised for the mixer.
  /// Such a block has a feed-forward part, no cross-attention, and merges no rows.
  enum class Parts : std::uint8_t { in_turn, side_by_side };
  Parts parts = Parts::in_turn;
  Mixer mixer = AttentionOptions{};
  /// Of a recurrence; what attention sees is up to the mask. `the_past`: the recurrence reads from left to
  /// right, and needs the mask Causal{}. `both_sides`: a second one, with the same options and parameters of
  /// its own, reads every sequence from its last row to its first, and the two results are added. So the
  /// mixer is as large as two. The mask is Everything{} or KeyLengths{}, and the stack cannot read row by
  /// row. Block attention sees the past alone, and needs the mask Causal{} too.
  Sees recurrence_sees = Sees::the_past;
  std::optional<TokenMerging> merging = std::nullopt;    ///< of the rows behind the mixer
  std::optional<AttentionOptions> cross = std::nullopt;  ///< to a memory, such as an encoder's output
  Mlp mlp = PlainMlp{};
  NormSpec norm = {};
  NormPlace mixer_norm = NormPlace::pre, cross_norm = NormPlace::pre, mlp_norm = NormPlace::pre;
  float dropout = 0.0f;        ///< of each branch's output
  float branch_factor = 1.0f;  ///< of each branch's output, before dropout: Granite's residual_multiplier
};

/// Sines and cosines added to the first rows (sinusoidal_positions).
struct SinusoidalPositions {
  double base = 10000.0;
  std::int64_t first = 0;  ///< the position of the first row: fairseq's models begin at 2
};
/// One learned row for each position, added to the first rows. Position i uses row i + first_row of the
/// table: BART leaves two rows free, RoBERTa those up to its padding id. Parameter: embed_positions.weight.
struct LearnedPositions {
  std::int64_t count = 512, first_row = 0;
};
/// Nothing is added. Rotary positions, ALiBi and relative biases belong to the attention of each block.
struct NoPositions {};
using Positions = std::variant<NoPositions, SinusoidalPositions, LearnedPositions>;

struct StackSpec {
  std::int64_t dim = 64;
  std::vector<BlockSpec> blocks = {};
  /// How often the blocks run, each round behind the one before, with the same weights (Dehghani et al. 2019,
  /// arXiv 1807.03819; ALBERT, Lan et al. 2020, arXiv 1909.11942).
  std::int64_t rounds = 1;
  /// Elements of the input rows, of the positions that are added to them, and of their norm. A matrix then
  /// brings them to `dim` (ALBERT, ELECTRA). Nothing: `dim`, and no matrix.
  std::optional<std::int64_t> input_dim = std::nullopt;
  Positions positions = NoPositions{};
  std::optional<NormSpec> embedding_norm = std::nullopt;  ///< of the input rows (BERT, BART)
  std::optional<NormSpec> final_norm = std::nullopt;      ///< of the output rows: pre-norm needs one
  float dropout = 0.0f;                                   ///< of the input rows
  /// Whether each block learns its mixer's arguments itself, or all share those of the first, as T5's
  /// relative bias does.
  enum class Arguments : std::uint8_t { of_each_block, of_the_first };
  Arguments arguments = Arguments::of_each_block;

  std::int64_t input_elements() const { return input_dim.value_or(dim); }
  /// The blocks of all rounds.
  std::int64_t layers() const { return std::ssize(blocks) * rounds; }
  const BlockSpec& of_layer(std::size_t layer) const { return blocks[layer % blocks.size()]; }
};

/// The numbers in which plain Transformers differ.
struct TransformerOptions {
  std::int64_t layers = 2, dim = 64, feed_forward = 128, heads = 4;
  /// Whether a block also attends to a memory, such as an encoder's output.
  enum class CrossAttention : std::uint8_t { without, with };
  CrossAttention cross_attention = CrossAttention::without;
  NormPlace norm = NormPlace::pre;
  float dropout = 0.0f, attention_dropout = 0.0f;
};
/// The blocks of Vaswani et al. 2017 with those numbers, without positions. The caller may change the result
/// before making a stack of it.
StackSpec stack_of(const TransformerOptions& options);
/// `count` equal blocks, with the final norm that pre-norm needs.
StackSpec stack_of(std::int64_t dim, std::int64_t count, const BlockSpec& block);

/// Adds ALiBi to every attention of `stack`, for every head: as a mod, or BlockAttentionOptions::alibi. The
/// slopes are learned and start as the paper's (Press et al. 2022, arXiv 2108.12409). Where rows see both
/// sides the distance is |query - key|: the paper's query - key would favour a key more the farther ahead it
/// is.
void add_alibi(StackSpec& stack, Sees sees);
/// Adds T5's relative bias (Raffel et al. 2020, arXiv 1910.10683) to the mods of every attention of `stack`.
/// One table, which starts at 0, serves all blocks.
void add_relative_bias(StackSpec& stack, const RelativeBias& bias);
/// Adds rotary positions to every attention, block attention and retention of `stack`, for sequences of up to
/// `positions` rows. All elements of a head are rotated (Su et al. 2021, arXiv 2104.09864). Other recurrences
/// need no positions.
void add_rotary(StackSpec& stack, std::int64_t positions, double base = 10000.0);

}  // namespace fovea::nn
