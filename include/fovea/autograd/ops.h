// Here is reverse-mode differentiation: the tape, and the differentiable operations on f32 tensors. Layers
// with parameters are in nn/. Open this header first; var.h explains the tape.
//
// Each op's backward stands beside its forward in src/autograd. Every op checks the shapes of its arguments.
// An argument without elements is refused where it is not said that it may be empty (InvalidArgument).
// Attention runs on the engine. `...` is any leading shape, contiguous.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/attention/spec.h"
#include "fovea/autograd/var.h"
#include "fovea/core/kept_vector.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/rope.h"

namespace fovea::autograd {

// -- element-wise
Var add(const Var& a, const Var& b);       ///< same shape
Var multiply(const Var& a, const Var& b);  ///< same shape
Var scale(const Var& x, float factor);
Var tanh(const Var& x);
Var sigmoid(const Var& x);
/// The activations of models' feed-forward parts.
enum class Activation : std::uint8_t {
  relu,       ///< max(0, x)
  gelu,       ///< x·Φ(x), Φ the normal distribution function (Hendrycks and Gimpel 2016, arXiv 1606.08415)
  gelu_tanh,  ///< ½x(1 + tanh(sqrt(2/π)(x + 0.044715x³))), also called gelu, in GPT-2, Gemma and T5 v1.1
  silu,       ///< x·σ(x) (Elfwing et al. 2017, arXiv 1702.03118), also called swish
  quick_gelu,   ///< x·σ(1.702x): CLIP
  tanh,         ///< BERT's pooler
  relu_squared  ///< max(0, x)² (So et al. 2021, arXiv 2109.08668, section 4)
};
Var activate(Activation activation, const Var& x);
inline Var relu(const Var& x) {
  return activate(Activation::relu, x);
}
/// activation(gate) ∘ x, of one shape (Shazeer 2020, arXiv 2002.05202).
Var gated(Activation activation, const Var& gate, const Var& x);
/// Counter-based: byte i of the Philox stream (seed, stream) decides whether element i is kept. The rate is
/// rounded to k/256 as in attention/dropout.h: 1/512 or less drops nothing.
Var dropout(const Var& x, float rate, std::uint64_t seed, std::uint64_t stream);

// -- shape
/// The same elements in another shape.
Var reshape(const Var& x, Shape shape);
/// The parts one behind the other along `axis`; -1 is the last axis. Their other sizes are equal.
Var concat(std::span<const Var> parts, int axis);
/// Elements [begin, begin + length) of `axis`, which is counted as in concat.
Var slice(const Var& x, int axis, std::int64_t begin, std::int64_t length);
/// x [B, T, D], index [B] -> [B, D]: row index[b] of entry b.
Var gather_rows(const Var& x, std::span<const std::int64_t> index);
/// x [B, T, D], index [B * count] -> [B, count, D]: rows index[b * count + i] of entry b; a row may occur
/// more than once.
Var gather_rows(const Var& x, std::span<const std::int64_t> index, std::int64_t count);
/// Row i of the result is that of a where mask[i] is 1, and that of b where mask[i] is 0; a, b [B, ...], mask
/// [B].
Var blend_rows(std::span<const float> mask, const Var& a, const Var& b);

// -- reductions and products
Var sum(const Var& x);  ///< of all elements: [1]
enum class Pool : std::uint8_t { mean, max };
/// x [B, T, D] -> [B, D]: over the first lengths[b] rows of entry b; without `lengths` all T. The gradient of
/// a maximum goes to the first row that has it. Throws InvalidArgument for a length outside [1, T].
Var pool(Pool kind, const Var& x, std::span<const std::int64_t> lengths);
/// a [B, M, D], b [B, N, D] -> [B, M, N]: ⟨a_m, b_n⟩ within each entry.
Var inner_products(const Var& a, const Var& b);
/// x [..., D] -> the same, each row divided by its Euclidean length, or by `epsilon` if that is larger.
Var normalize_rows(const Var& x, float epsilon = 1e-6f);

// -- layers
/// How products of rows and weights that are not packed are computed where nothing is recorded. With packed
/// weights (nn::ParameterSet::pack) a row always has the same bits.
enum class Products : std::uint8_t {
  fastest,
  by_row,  ///< a row has the same bits however many rows are computed with it. `fovea bench products`: up to
           ///< twice the time of `fastest` for 5 rows, up to 2.7 times for 64 or more
};
/// x [..., in], weight [out, in], bias [out] or empty -> [..., out]. A packed weight is read in its packed
/// form if nothing is recorded. Rows of bf16 come from `linears_in_bf16`, `attention`, `residual_norm` and
/// `rounded`. Weights that are packed in bf16 take them, here and in the ops of several layers, with the bits
/// that these rows have in f32. Others throw InvalidArgument.
Var linear(const Var& x, const Var& weight, const Var& bias, Products products = Products::fastest);

/// x in bf16, for several layers with weights of bf16 that read the same rows. Throws InvalidArgument for a
/// recorded x.
Var rounded(const Var& x);

/// The matrix and the bias of `linear`.
struct LinearWeights {
  Var weight, bias = {};
};
/// `linear` of x with each of the layers, with the same bits. Where nothing is recorded and all weights are
/// packed in one type, the rows of x are rounded once and all products run side by side.
KeptVector<Var> linears(const Var& x, std::span<const LinearWeights> layers,
                        Products products = Products::fastest);
/// The same, each result rounded to bf16 while it lies in a near cache: operands of an attention in bf16.
/// Throws InvalidArgument where something is recorded or the weights are not packed in one type.
KeptVector<Var> linears_in_bf16(const Var& x, std::span<const LinearWeights> layers);

/// A feed-forward part; without a gate its weight is empty.
struct FeedForwardWeights {
  LinearWeights first, second, gate = {};
};
/// second(activation(first(x))), or second(activation(gate(x)) ∘ first(x)), with the bits of these ops one by
/// one. With packed weights of bf16, gelu and gelu_tanh are approximations: 1e-4 relative or 2.5e-7 absolute
/// error. Where nothing is recorded and all weights are packed in one type, inner rows are activated while
/// they lie in a near cache.
Var feed_forward(const Var& x, const FeedForwardWeights& weights, Activation activation,
                 Products products = Products::fastest);
/// table [V, D], ids (each in [0, V)) -> [ids.size(), D], times `factor`.
Var embedding(const Var& table, std::span<const std::int32_t> ids, float factor = 1.0f);
/// Weighted sums of rows of table [V, D] -> [counts.size(), D]. The groups stand one after the other in
/// `ids`; group g has counts[g] ids (0: a row of zeros). `weights` has one number for each id; empty: 1 each.
/// Use: a word as the sum of its parts (Bojanowski et al. 2017, arXiv 1607.04606).
Var embedding_sums(const Var& table, std::span<const std::int32_t> ids, std::span<const std::int64_t> counts,
                   std::span<const float> weights = {});
/// (x - mean) / sqrt(variance + epsilon) ∘ (gamma + gamma_offset) + beta over the last axis: x [..., D],
/// gamma [D], beta [D] or empty (Ba et al. 2016, arXiv 1607.06450). With an offset of 1, gamma can start at 0
/// and decay towards 0.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float epsilon, float gamma_offset = 0.0f);
/// x / sqrt(mean x² + epsilon) ∘ (gamma + gamma_offset) over the last axis: x [..., D], gamma [D] (Zhang and
/// Sennrich 2019, arXiv 1910.07467). Gemma's gamma has an offset of 1.
Var rms_norm(const Var& x, const Var& gamma, float epsilon, float gamma_offset = 0.0f);

// -- recurrent. The caller computes the gates' inputs W x + b for all steps at once, with `linear`.
enum class Cell : std::uint8_t {
  rnn,  ///< h' = tanh(x + R h + b) (Elman 1990)
  gru,  ///< gates reset, update, new; h' = (1-z) n + z h, n = tanh(x_n + r ∘ (R_n h + b_n)): Cho et al. 2014,
        ///< in PyTorch's and cuDNN's form
  lstm  ///< gates input, forget, cell, output; c' = f ∘ c + i ∘ g, h' = o ∘ tanh(c') (Hochreiter and
        ///< Schmidhuber 1997, with the forget gate of Gers et al. 2000)
};
/// Rows of gates: 1, 3 or 4 times H.
constexpr int gate_count(Cell cell) noexcept {
  return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1;
}
/// S, the size of a cell's state in units of H: an LSTM's state is [h, c], that of the others h alone.
constexpr int state_count(Cell cell) noexcept {
  return cell == Cell::lstm ? 2 : 1;
}
/// One step. gates [B, G*H], state [B, S*H], weight [G*H, H], bias [G*H] -> [B, S*H].
Var cell_step(Cell cell, const Var& gates, const Var& state, const Var& weight, const Var& bias);
enum class Direction : std::uint8_t { forward, backward };
/// All steps of a padded batch. gates [B, T, G*H], state [B, S*H] (empty: zeros) -> states [B, T, S*H]. Steps
/// t >= lengths[b] copy the state unchanged (forward), or hold the initial state (backward direction, which
/// starts at lengths[b]-1). They pass no gradient to `gates`. Throws InvalidArgument for a length outside
/// [0, T].
Var cell_sequence(Cell cell, Direction direction, const Var& gates, const Var& state, const Var& weight,
                  const Var& bias, std::span<const std::int64_t> lengths);
/// The part h of a cell's states [..., S*H], which other layers read: [..., H].
Var cell_output(Cell cell, const Var& states);

// -- attention, on the engine
class PlanCache;  // plan_cache.h
/// An argument of a call by its full name (attention/argument.h): {"score.W", W}, {"mods[0].slope", slopes}.
/// An empty Var means "not given". A recorded Var gets its gradient.
struct AttentionArgument {
  std::string name;
  Var value;
};
struct AttentionCall {
  AttentionSpec spec;
  std::int64_t num_query_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::span<const std::int64_t> key_lengths = {};  ///< for KeyLengths{} in the mask
  /// As in AttentionInputs: where it is not given, queries and keys end together.
  std::optional<std::int64_t> query_offset = {};
  /// One for each batch entry, in the place of query_offset.
  std::span<const std::int64_t> query_offsets = {};
  /// For a packed batch (AttentionInputs in plan/plan.h): [entries + 1] each. B is then 1, and Lq and Lk are
  /// the rows of all entries. A plan has the number of entries as batch, and the rows of the longest entry.
  std::span<const std::int64_t> query_starts = {}, key_starts = {};
  /// Keys and values of a cache (AttentionInputs::cache) in the place of `key` and `value`, which are then
  /// empty. No gradients are taken, so nothing may be recorded.
  std::span<const KeyValueView> cache = {};
  std::uint64_t dropout_seed = 0;
  std::uint64_t sample_seed = 0;                 ///< for HardSample and GumbelSample
  KeptVector<AttentionArgument> arguments = {};  ///< of the spec, in f32
  /// An f32 plan that was made before, for a caller that calls often; `spec` is then not read. A bf16 plan is
  /// taken where queries, keys and values are given, which are then rounded. Another one is InvalidArgument.
  /// The plan serves this call and its backward pass, so the call's sizes must be within the plan's shape.
  std::optional<AttentionPlan> plan = std::nullopt;
  /// Where the call's plan is kept for the next call of its spec and shape; `plan` comes first. The caller
  /// keeps it.
  PlanCache* plans = nullptr;
  Tensor* weights = nullptr;  ///< if given, receives [B, Hq, Lq, Lk]; of a packed batch Lk is the longest's
  /// For HardSample: each row's loss less a baseline, [B, Hq, Lq] (AttentionLoss::advantage). Backward reads
  /// it, so its elements may be written when the loss is known. Without it, queries, keys and arguments of
  /// scores cannot be recorded.
  Tensor advantage = {};
};
/// query [B, Lq, Hq*dq], key [B, Lk, Hkv*dk], value [B, Lk, Hkv*dv] -> [B, Lq, Hq*dv]: heads are strided
/// views, nothing is transposed. `key` is empty for a score that reads no keys (Location). Operands of bf16
/// need call.plan to be of bf16, and give a result of bf16; nothing may then be recorded. Throws what
/// make_plan and attend throw: for an argument that is missing, that the spec does not have, or that has
/// another shape.
Var attention(const AttentionCall& call, const Var& query, const Var& key, const Var& value);

/// The weights themselves (pointer networks, losses on alignments): [B, Hq, Lq, Lk], differentiable with
/// respect to query, key and arguments. Throws InvalidArgument for a spec with dropout.
Var attention_weights(const AttentionCall& call, const Var& query, const Var& key);

/// x [B, L, num_heads * dim] -> the same shape. The first elements of each head of row l are rotated for
/// position `first` + l (plan/rope.h). Throws InvalidArgument for positions that are not in the table.
Var rotate(const Var& x, const RopeTable& table, std::int64_t num_heads, std::int64_t first = 0);
/// The same with a `first` for each of the B batch entries.
Var rotate(const Var& x, const RopeTable& table, std::int64_t num_heads, std::span<const std::int64_t> first);
/// The same for a packed batch: x [1, L, num_heads * dim], starts [entries + 1]. Row starts[e] + l is rotated
/// for position first[e] + l. Also throws InvalidArgument for starts that do not ascend from 0 to L, and
/// unless first has one number for each entry.
Var rotate_packed(const Var& x, const RopeTable& table, std::int64_t num_heads,
                  std::span<const std::int64_t> starts, std::span<const std::int64_t> first);

// -- losses. Each loss is reduction.scale · Σ_n reduction.weights[n] · loss_n over its terms, [1]. A scale of
// 1/n gives a mean.
struct Reduction {
  std::span<const float> weights =
      {};  ///< one for each term, of any sign (REINFORCE's advantage); empty: 1 each
  float scale = 1.0f;
};
/// Statistics of a loss over rows with targets. Weights and scale do not enter them.
struct CrossEntropyStats {
  double loss = 0.0;            ///< sum over tokens of the (smoothed) loss, nats
  double log_likelihood = 0.0;  ///< sum over tokens of log p(target), nats: perplexity = exp(-mean)
  std::int64_t tokens = 0;      ///< rows whose target is not -1
  std::int64_t correct = 0;     ///< tokens whose argmax is the target

  /// Adds the statistics of other rows.
  CrossEntropyStats& operator+=(const CrossEntropyStats& other) {
    loss += other.loss;
    log_likelihood += other.log_likelihood;
    tokens += other.tokens;
    correct += other.correct;
    return *this;
  }
};
/// The terms are the rows whose target >= 0; loss_n is the label-smoothed cross-entropy of softmax(x Wᵀ + b).
/// The logits [N, V] never stand whole in memory: they are computed in chunks of rows, each with its
/// gradients. x [N, D], weight [V, D], bias [V] or empty, targets [N] (-1: ignored). Smoothing: (1-ε) on the
/// target, ε/V on every class (Szegedy et al. 2016).
Var linear_cross_entropy(const Var& x, const Var& weight, const Var& bias,
                         std::span<const std::int32_t> targets, float smoothing = 0.0f,
                         const Reduction& reduction = {}, CrossEntropyStats* stats = nullptr);
/// The terms are the rows of logits [N, V] whose target >= 0; loss_n = -log softmax(logits_n)[target_n].
Var cross_entropy(const Var& logits, std::span<const std::int32_t> targets, const Reduction& reduction = {},
                  CrossEntropyStats* stats = nullptr);
/// The terms are the rows of probabilities [N, V] whose target >= 0, as attention_weights gives them; loss_n
/// = -log p_n[target_n], where a probability below 1e-30 counts as 1e-30.
Var negative_log_likelihood(const Var& probabilities, std::span<const std::int32_t> targets,
                            const Reduction& reduction = {}, CrossEntropyStats* stats = nullptr);
/// The terms are the elements of x; loss_n = (x_n - target_n)². target has x's shape.
Var squared_error(const Var& x, const Tensor& target, const Reduction& reduction = {});

/// The index of the largest element of each row of `rows` [N, V]; the first of equals.
std::vector<std::int32_t> argmax_rows(const Tensor& rows);
/// log softmax of each row of `logits` [N, V], in place; for decoding, not recorded.
void log_softmax_rows(Tensor& logits);
/// x = factor·x, or with a cap x = cap·tanh(factor·x / cap), with an absolute error below 3e-7·cap: the soft
/// cap of logits of Gemma 2 (arXiv 2408.00118, section 2). f32, in place. Not recorded.
void scale_and_cap(Tensor& x, float factor, std::optional<float> cap);
/// A class of a row of logits.
struct Probable {
  std::int32_t id = 0;
  float log_probability = 0.0f;
};
/// Whether most_probable gives log-probabilities, which take an exponential a class.
enum class LogProbabilities : std::uint8_t {
  given,
  left_out  ///< the logits stand in their place
};
/// The `count` classes of the largest log softmax of each row of `logits` [N, V], those of the largest logits
/// first, of equals the smaller id. A class of `without` is left out, so a row may have fewer. A row has
/// none if a logit is NaN or the largest one infinite, since its log-probabilities would be NaN. The numbers
/// have the bits of log_softmax_rows, which reads and writes every class twice as often. Not recorded.
std::vector<std::vector<Probable>> most_probable(const Tensor& logits, std::size_t count,
                                                 std::span<const std::int32_t> without = {},
                                                 LogProbabilities numbers = LogProbabilities::given);

}  // namespace fovea::autograd
