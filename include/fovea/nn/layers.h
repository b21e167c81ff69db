// The small layers: Linear, Norm, Embedding, RnnLayer. Each is a plain struct of parameters with one forward.
// Attention is in attention.h, whole Transformer blocks are in blocks.h and transformer.h. A layer that its
// default constructor made has no parameters, and its calls throw InvalidArgument.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "fovea/nn/module.h"

namespace fovea::nn {

struct Linear {
  Parameter* weight = nullptr;  ///< [out, in], "<name>.weight"
  Parameter* bias = nullptr;    ///< [out], "<name>.bias"; null: none
  enum class Bias { with, without };
  Linear() = default;
  /// `gain` is that of ParameterSet::xavier.
  Linear(ParameterSet& set, const std::string& name, std::int64_t in, std::int64_t out,
         Bias bias = Bias::with, float gain = 1.0f);
  /// x [..., in] -> [..., out]. Throws InvalidArgument for another width, and for a layer made without sizes.
  Var operator()(Context& context, const Var& x) const;
  /// The matrix and the bias, for ops that compute several layers at once.
  autograd::LinearWeights weights(Context& context) const;
  /// Whether it takes rows of bf16, with the bits of the same rows in f32: nothing is recorded, and the
  /// weights are packed in bf16.
  bool takes_bf16(const Context& context) const;
};

/// 1/√2: the gain of the projections of queries, keys and values in attention layers. With rows of one width
/// it is that of fairseq and PyTorch: Xavier's bound of one matrix for all three, [3 · dim, dim]. Layers with
/// other widths have it too (docs/decisions/0049).
inline constexpr float query_key_value_gain = 0.70710678f;

/// How rows are normalised.
struct NormSpec {
  enum class Kind : std::uint8_t {
    layer,  ///< Ba et al. 2016, arXiv 1607.06450
    rms     ///< Zhang and Sennrich 2019, arXiv 1910.07467; never has a bias
  };
  Kind kind = Kind::layer;
  float epsilon = 1e-5f;
  /// Rows are multiplied by weight + offset. With an offset of 1, Gemma's, weights start at 0.
  float weight_offset = 0.0f;
  Linear::Bias bias = Linear::Bias::with;
  /// Without a weight rows are only normalised (OLMo).
  enum class Weight : std::uint8_t { with, without };
  Weight weight = Weight::with;
};

struct Norm {
  Parameter* weight = nullptr;  ///< [dim], "<name>.weight"; null: none
  Parameter* bias = nullptr;    ///< [dim], "<name>.bias"; null: none
  NormSpec spec = {};
  Var ones = {};  ///< in the place of a weight
  Norm() = default;
  Norm(ParameterSet& set, const std::string& name, std::int64_t dim, const NormSpec& spec = {});
  /// x [..., dim] -> the same shape, each row normalised.
  Var operator()(Context& context, const Var& x) const;
  /// The norm of x + dropout(y), and that sum, as they are read (autograd::residual_norm).
  autograd::ResidualNorm of_residual(Context& context, const Var& x, const Var& y,
                                     const autograd::DropoutOf& dropout,
                                     const autograd::ResidualReads& reads = {}) const;
  /// The weight, or ones.
  Var gamma(Context& context) const;
};

struct Embedding {
  Parameter* table = nullptr;  ///< [vocabulary, dim], "<name>.weight"; N(0, 1/sqrt(dim))
  Embedding() = default;
  Embedding(ParameterSet& set, const std::string& name, std::int64_t vocabulary, std::int64_t dim);
  /// ids -> [ids.size(), dim], times `factor`. Throws InvalidArgument for an id outside the table.
  Var operator()(Context& context, std::span<const std::int32_t> ids, float factor = 1.0f) const;
};

/// One direction of an RNN, GRU or LSTM, as PyTorch has them. (Linear attention in its recurrent form is
/// another thing: it has no cell.) A state has S*H elements (autograd::state_count). Parameters: input
/// weights "<name>.weight_ih" [G*H, in] and "<name>.bias_ih", recurrent weights "<name>.weight_hh" [G*H, H]
/// and "<name>.bias_hh".
struct RnnLayer {
  autograd::Cell cell = autograd::Cell::gru;
  Linear input;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  RnnLayer() = default;
  RnnLayer(ParameterSet& set, const std::string& name, autograd::Cell cell, std::int64_t in,
           std::int64_t hidden);
  /// x [B, T, in] -> states [B, T, S*H]. Entry b has lengths[b] steps. `initial` [B, S*H] is the state before
  /// the first step; empty: zeros. Steps behind an entry's length: autograd::cell_sequence.
  Var sequence(Context& context, const Var& x, autograd::Direction direction, const Var& initial,
               std::span<const std::int64_t> lengths) const;
  /// x [B, in], state [B, S*H] -> [B, S*H].
  Var step(Context& context, const Var& x, const Var& state) const;
  /// The part h of states [..., S*H] that other layers read: [..., H].
  Var output(const Var& states) const { return autograd::cell_output(cell, states); }
  std::int64_t hidden() const { return weight ? weight->value.size(1) : 0; }
};

/// Scales the start and the learning rate of `matrices` as if their score were divided by sqrt(dim). The
/// score's formula does not change. The matrices are those of a score that is a sum of `dim` products. Why it
/// works: s = c·(U'k)ᵀ(W'q) with c = 1/sqrt(dim) is (U k)ᵀ(W q) with U = √c·U' and W = √c·W'. So each of n
/// matrices is multiplied by c^(1/n), and so is its rate_factor. Yang et al. 2022 (arXiv 2203.03466) exchange
/// a multiplier for a start and a rate in this way. Recurrent states tend to have elements of ±1. Queries and
/// keys like these then have scores of a standard deviation near 1 at any width, and near 1/2 in attention
/// layers, whose projections have query_key_value_gain. One update of Adam then changes the scores by no more
/// than it changes those of the scaled dot product. Call this once, right after the matrices were declared.
/// Throws InvalidArgument for no matrix, a null one or dim < 1.
void scale_score(std::initializer_list<Parameter*> matrices, std::int64_t dim);

/// Before training: copies "<name>.q_proj.weight" into "<name>.k_proj.weight" for every attention in `set`.
/// Equal inputs then have the largest scores from the first update on. This helps a layer whose task is to
/// find what equals the query. Kitaev et al. 2020 (arXiv 2001.04451, section 2) keep the two equal throughout
/// training. Throws InvalidArgument where the two have different shapes.
void start_keys_as_queries(ParameterSet& set);
/// Before training: makes every attention in `set` return nearly the unchanged rows that it attends to. The
/// value and the output projection, [dim, dim], become 0.7 of the identity plus 0.3 of their old values.
/// Together with start_keys_as_queries, equal inputs have an effect on the result from the first update on.
/// Trockman and Kolter (2023, arXiv 2305.09828) found trained attention to be like this. They trained faster
/// from such a start.
void start_values_as_identity(ParameterSet& set);

/// Learned `rows` [L, dim], once for each entry of a batch: [batch, L, dim].
Var repeated_rows(Context& context, Parameter& rows, std::int64_t batch);

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5): [length, dim], starting at position `first`.
/// Sines are in the first half of the dimensions, cosines in the second, as in Marian and fairseq.
/// Wavelengths go from 2π to 2π · `base`.
Tensor sinusoidal_positions(std::int64_t first, std::int64_t length, std::int64_t dim, double base = 10000.0);
/// The same for any positions: [positions.size(), dim].
Tensor sinusoidal_positions(std::span<const std::int64_t> positions, std::int64_t dim, double base = 10000.0);
/// x [B, T, D] + positions [T, D], the same for each entry. Throws InvalidArgument for other shapes.
Var add_positions(const Var& x, const Tensor& positions);

}  // namespace fovea::nn
