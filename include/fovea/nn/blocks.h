// What a stack of layers is made of, as plain values: every Transformer, encoder, decoder or decoder alone,
// whatever its norms, activations, positions and scores, is one StackSpec, and one forward runs it
// (transformer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "fovea/nn/attention.h"
#include "fovea/nn/layers.h"

namespace fovea::nn {

/// Where the norms of one branch of a block stand. x is the row that comes in, f the branch.
enum class NormPlace : std::uint8_t {
  pre,       ///< x + f(norm(x)): trains without warm-up (Xiong et al. 2020, arXiv 2002.04745)
  post,      ///< norm(x + f(x)): the paper's
  sandwich,  ///< x + norm(f(norm(x))): Gemma 2
  end,       ///< x + norm(f(x)): OLMo 2
  none       ///< x + f(x)
};

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
using Mlp = std::variant<PlainMlp, GatedMlp>;

/// What mixes the rows of a sequence.
using Mixer = std::variant<AttentionOptions>;

/// One block: a mixer, attention to a memory where there is one, and a feed-forward part, each inside a
/// residual sum.
struct BlockSpec {
  Mixer mixer = AttentionOptions{};
  std::optional<AttentionOptions> cross = std::nullopt;  ///< to a memory, such as an encoder's output
  Mlp mlp = PlainMlp{};
  NormSpec norm = {};
  NormPlace mixer_norm = NormPlace::pre, cross_norm = NormPlace::pre, mlp_norm = NormPlace::pre;
  float dropout = 0.0f;  ///< of what each branch adds
};

/// Sines and cosines added to the first rows (sinusoidal_positions).
struct SinusoidalPositions {
  double base = 10000.0;
};
/// A learned row a position, added to the first rows: position i has row i + first_row of the table, as BART
/// leaves two and RoBERTa its padding's free. Parameter: embed_positions.weight.
struct LearnedPositions {
  std::int64_t count = 512, first_row = 0;
};
/// None added. Rotary positions, ALiBi and relative biases belong to the attention of each block.
struct NoPositions {};
using Positions = std::variant<NoPositions, SinusoidalPositions, LearnedPositions>;

struct StackSpec {
  std::int64_t dim = 64;
  std::vector<BlockSpec> blocks = {};
  Positions positions = NoPositions{};
  std::optional<NormSpec> embedding_norm = std::nullopt;  ///< of the rows that enter (BERT, BART)
  std::optional<NormSpec> final_norm = std::nullopt;      ///< of the rows that leave: what pre-norm ends with
  float dropout = 0.0f;                                   ///< of the rows that enter
  /// Whose arguments the mixers learn: each block its own, or all those of the first, as T5's relative bias.
  enum class Arguments : std::uint8_t { of_each_block, of_the_first };
  Arguments arguments = Arguments::of_each_block;
};

/// The numbers in which plain Transformers differ.
struct TransformerOptions {
  std::int64_t layers = 2, dim = 64, feed_forward = 128, heads = 4;
  /// What a block attends to besides its own sequence: nothing, or a memory (an encoder's output).
  enum class Reads : std::uint8_t { itself, memory };
  Reads reads = Reads::itself;
  NormPlace norm = NormPlace::pre;
  float dropout = 0.0f, attention_dropout = 0.0f;
};
/// The blocks of Vaswani et al. 2017 with those numbers, without positions. What it returns may be changed
/// before a stack is made of it.
StackSpec stack_of(const TransformerOptions& options);
/// `count` equal blocks, with the final norm that pre-norm needs.
StackSpec stack_of(std::int64_t dim, std::int64_t count, const BlockSpec& block);

/// ALiBi for every head, whose slopes are learned and start as the paper's (Press et al. 2022, arXiv
/// 2108.12409), added to the mods of every mixer of `stack`. Where rows see both sides the distance is
/// |query - key|: the paper's query - key would favour keys the more the farther they are ahead.
enum class Sees : std::uint8_t { the_past, both_sides };
void add_alibi(StackSpec& stack, Sees sees);
/// T5's relative bias (Raffel et al. 2020, arXiv 1910.10683), one table for all blocks that starts at 0,
/// added to the mods of every mixer of `stack`.
void add_relative_bias(StackSpec& stack, const RelativeBias& bias);
/// Rotary positions for sequences of up to `positions` rows, in every mixer of `stack`: all elements of a
/// head turn (Su et al. 2021, arXiv 2104.09864).
void add_rotary(StackSpec& stack, std::int64_t positions, double base = 10000.0);

}  // namespace fovea::nn
