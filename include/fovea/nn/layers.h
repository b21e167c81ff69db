// Layers: plain structs of parameters with a forward.
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
  Linear(ParameterSet& set, const std::string& name, std::int64_t in, std::int64_t out,
         Bias bias = Bias::with);
  Var operator()(Context& context, const Var& x) const;
};

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
};

struct Norm {
  Parameter* weight = nullptr;  ///< [dim], "<name>.weight"
  Parameter* bias = nullptr;    ///< [dim], "<name>.bias"; null: none
  NormSpec spec = {};
  Norm() = default;
  Norm(ParameterSet& set, const std::string& name, std::int64_t dim, const NormSpec& spec = {});
  Var operator()(Context& context, const Var& x) const;
};

struct Embedding {
  Parameter* table = nullptr;  ///< [vocabulary, dim], "<name>.weight"; N(0, 1/sqrt(dim))
  Embedding() = default;
  Embedding(ParameterSet& set, const std::string& name, std::int64_t vocabulary, std::int64_t dim);
  /// ids -> [ids.size(), dim], times `factor`.
  Var operator()(Context& context, std::span<const std::int32_t> ids, float factor = 1.0f) const;
};

/// One direction of an RNN, GRU or LSTM, whose state has S*H elements (autograd::state_count): input weights
/// "<name>.weight_ih" [G*H, in], "<name>.bias_ih"; recurrent
/// "<name>.weight_hh" [G*H, H], "<name>.bias_hh".
struct Recurrent {
  autograd::Cell cell = autograd::Cell::gru;
  Linear input;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  Recurrent() = default;
  Recurrent(ParameterSet& set, const std::string& name, autograd::Cell cell, std::int64_t in,
            std::int64_t hidden);
  /// x [B, T, in] -> states [B, T, S*H].
  Var sequence(Context& context, const Var& x, autograd::Direction direction, const Var& initial,
               std::span<const std::int64_t> lengths) const;
  /// x [B, in], state [B, S*H] -> [B, S*H].
  Var step(Context& context, const Var& x, const Var& state) const;
  /// What other layers see of states [..., S*H]: [..., H].
  Var shown(const Var& states) const { return autograd::shown(cell, states); }
  std::int64_t hidden() const { return weight ? weight->value.size(1) : 0; }
};

/// Lets `matrices`, between which a score is a sum of `dim` products, start and learn as those of that score
/// divided by sqrt(dim), without changing the score: s = c·(U'k)ᵀ(W'q) with c = 1/sqrt(dim) is (U k)ᵀ(W q)
/// with U = √c·U', W = √c·W', so each of n matrices is multiplied by c^(1/n), and so is its rate_factor (the
/// exchange of a multiplier for a start and a rate: Yang et al. 2022, arXiv 2203.03466). Queries and keys
/// with elements of ±1, as recurrent states tend to have, then have scores of a standard deviation near 1 at
/// any width, and one update of Adam changes the scores by no more than it changes those of the scaled dot
/// product. Call it once, right after the matrices were declared. Throws InvalidArgument where there is no
/// matrix or dim < 1.
void scale_score(std::initializer_list<Parameter*> matrices, std::int64_t dim);

/// Lets the keys of every attention in `set` start as its queries: "<name>.k_proj.weight" becomes a copy of
/// "<name>.q_proj.weight", before training. Equal inputs then have the largest scores from the first update
/// on, so that a layer whose task is to find what equals the query need not find that out first (Kitaev et
/// al. 2020, arXiv 2001.04451, section 2, keep the two equal throughout). Throws InvalidArgument where the
/// two have different shapes.
void start_alike(ParameterSet& set);
/// Lets every attention in `set` start by handing on what it attends to nearly as it is: the values' and the
/// output's projections, [dim, dim], become 0.7 of the identity plus 0.3 of what they were. Together with
/// start_alike, equal inputs have an effect on the result from the first update on. Trockman and Kolter
/// (2023, arXiv 2305.09828) found trained attention to be like this, and trained faster from it.
void start_passing(ParameterSet& set);

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5): [length, dim] starting at position `first`; sines
/// in the first half of the dimensions, cosines in the second, as Marian and fairseq store them. Wavelengths
/// go from 2π to 2π · `base`.
Tensor sinusoidal_positions(std::int64_t first, std::int64_t length, std::int64_t dim, double base = 10000.0);
/// x [B, T, D] + positions [T, D].
Var add_positions(const Var& x, const Tensor& positions);

}  // namespace fovea::nn
