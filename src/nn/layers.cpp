#include "fovea/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/pieces.h"
#include "fovea/core/kept_vector.h"
#include "nn/made.h"

namespace fovea::nn {

Linear::Linear(ParameterSet& set, const std::string& name, std::int64_t in, std::int64_t out, Bias with_bias,
               float gain)
    : weight(&set.xavier(name + ".weight", {out, in}, gain)),
      bias(with_bias == Bias::with ? &set.constant(name + ".bias", {out}, 0.0f) : nullptr) {
  weight->multiplies_rows = true;
}

autograd::LinearWeights Linear::weights(Context& context) const {
  check_made("Linear", "weight", weight);
  return {context.use(*weight), bias ? context.use(*bias) : Var()};
}

Var Linear::operator()(Context& context, const Var& x) const {
  const auto [matrix, added] = weights(context);
  return autograd::linear(x, matrix, added, context.products);
}

bool Linear::takes_bf16(const Context& context) const {
  return !context.tape && weight && weight->packed && weight->packed->type() == autograd::WeightType::bf16;
}

Norm::Norm(ParameterSet& set, const std::string& name, std::int64_t dim, const NormSpec& norm)
    : weight(norm.weight == NormSpec::Weight::with
                 ? &set.constant(name + ".weight", {dim}, 1.0f - norm.weight_offset)
                 : nullptr),
      bias(norm.kind == NormSpec::Kind::layer && norm.bias == Linear::Bias::with
               ? &set.constant(name + ".bias", {dim}, 0.0f)
               : nullptr),
      spec(norm) {
  if (weight) return;
  Tensor values(DType::f32, {dim});
  values.fill(1.0f - norm.weight_offset);
  ones = Var(values);
}

Var Norm::gamma(Context& context) const {
  check_made("Norm", "weight", weight || !ones.empty());
  return weight ? context.use(*weight) : ones;
}

Var Norm::operator()(Context& context, const Var& x) const {
  if (spec.kind == NormSpec::Kind::rms)
    return autograd::rms_norm(x, gamma(context), spec.epsilon, spec.weight_offset);
  return autograd::layer_norm(x, gamma(context), bias ? context.use(*bias) : Var(), spec.epsilon,
                              spec.weight_offset);
}

autograd::ResidualNorm Norm::of_residual(Context& context, const Var& x, const Var& y,
                                         const autograd::DropoutOf& dropout,
                                         const autograd::ResidualReads& reads) const {
  using Kind = autograd::RowNorm::Kind;
  return autograd::residual_norm(x, y,
                                 {.kind = spec.kind == NormSpec::Kind::rms ? Kind::rms : Kind::layer,
                                  .gamma = gamma(context),
                                  .beta = bias ? context.use(*bias) : Var(),
                                  .epsilon = spec.epsilon,
                                  .gamma_offset = spec.weight_offset},
                                 dropout, reads);
}

Embedding::Embedding(ParameterSet& set, const std::string& name, std::int64_t vocabulary, std::int64_t dim)
    : table(&set.normal(name + ".weight", {vocabulary, dim}, 1.0f / std::sqrt(static_cast<float>(dim)))) {
  table->gives_rows = true;
}

Var Embedding::operator()(Context& context, std::span<const std::int32_t> ids, float factor) const {
  check_made("Embedding", "table", table);
  return autograd::embedding(context.use(*table), ids, factor);
}

RnnLayer::RnnLayer(ParameterSet& set, const std::string& name, autograd::Cell kind, std::int64_t in,
                   std::int64_t hidden)
    : cell(kind) {
  const std::int64_t gates = autograd::gate_count(kind) * hidden;
  input.weight = &set.xavier(name + ".weight_ih", {gates, in});
  input.bias = &set.constant(name + ".bias_ih", {gates}, 0.0f);
  weight = &set.xavier(name + ".weight_hh", {gates, hidden});
  bias = &set.constant(name + ".bias_hh", {gates}, 0.0f);
  input.weight->multiplies_rows = weight->multiplies_rows = true;
}

Var RnnLayer::sequence(Context& context, const Var& x, autograd::Direction direction, const Var& initial,
                       std::span<const std::int64_t> lengths) const {
  check_made("RnnLayer", "weight", weight);
  return autograd::cell_sequence(cell, direction, input(context, x), initial, context.use(*weight),
                                 context.use(*bias), lengths);
}

Var RnnLayer::step(Context& context, const Var& x, const Var& state) const {
  check_made("RnnLayer", "weight", weight);
  return autograd::cell_step(cell, input(context, x), state, context.use(*weight), context.use(*bias));
}

void scale_score(std::initializer_list<Parameter*> matrices, std::int64_t dim) {
  if (matrices.size() == 0) throw InvalidArgument("scale_score", "matrices", "at least one", "none");
  for (const Parameter* matrix : matrices)
    if (!matrix) throw InvalidArgument("scale_score", "matrices", "parameters", "a null pointer");
  if (dim < 1) throw InvalidArgument("scale_score", "dim", "at least 1", std::to_string(dim));
  const double share = -0.5 / static_cast<double>(matrices.size());
  const auto factor = static_cast<float>(std::pow(static_cast<double>(dim), share));
  for (Parameter* matrix : matrices) {
    float* values = matrix->value.data<float>();
    const std::int64_t initial = matrix->given ? 0 : matrix->value.count();
    for (std::int64_t i = 0; i < initial; ++i) values[i] *= factor;
    matrix->rate_factor *= factor;
  }
}

void start_keys_as_queries(ParameterSet& set) {
  const std::string query = ".q_proj.weight";
  for (const Parameter& parameter : set.all()) {
    if (!parameter.name.ends_with(query)) continue;
    const std::string key = parameter.name.substr(0, parameter.name.size() - query.size()) + ".k_proj.weight";
    const Tensor& to = set.at(key).value;
    if (!(to.shape() == parameter.value.shape()))
      throw InvalidArgument("start_keys_as_queries", key,
                            "the shape of the queries' projection, " + to_string(parameter.value.shape()),
                            to_string(to.shape()));
    std::copy_n(parameter.value.data<float>(), parameter.value.count(), to.data<float>());
  }
}

void start_values_as_identity(ParameterSet& set) {
  constexpr float kept = 0.3f;
  for (Parameter& parameter : set.all()) {
    if (!parameter.name.ends_with(".v_proj.weight") && !parameter.name.ends_with(".out_proj.weight"))
      continue;
    const std::int64_t dim = parameter.value.size(0);
    if (parameter.value.size(1) != dim) continue;
    float* weight = parameter.value.data<float>();
    for (std::int64_t i = 0; i < dim * dim; ++i)
      weight[i] = kept * weight[i] + (i / dim == i % dim ? 1.0f - kept : 0.0f);
  }
}

Var repeated_rows(Context& context, Parameter& rows, std::int64_t batch) {
  const std::int64_t length = rows.value.size(0), dim = rows.value.size(1);
  KeptVector<std::int32_t> index(static_cast<std::size_t>(batch * length));
  for (std::size_t i = 0; i < index.size(); ++i)
    index[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % length);
  return reshape(autograd::embedding(context.use(rows), index), {batch, length, dim});
}

Tensor sinusoidal_positions(std::int64_t first, std::int64_t length, std::int64_t dim, double base) {
  KeptVector<std::int64_t> positions(static_cast<std::size_t>(length));
  std::iota(positions.begin(), positions.end(), first);
  return sinusoidal_positions(positions, dim, base);
}

Tensor sinusoidal_positions(std::span<const std::int64_t> positions, std::int64_t dim, double base) {
  Tensor table = Tensor::zeros(DType::f32, {std::ssize(positions), dim});
  const std::int64_t half = dim / 2;
  KeptVector<double> rates;
  rates.reserve(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i)
    rates.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  // The sentences of a packed batch have the same positions: each is computed once, or this took 2 % of an
  // update of `fovea bench train`. A table by hash asked for a block of memory for each row.
  KeptVector<std::int64_t> order(positions.size()), firsts;
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto position_of = [&](std::int64_t row) { return positions[static_cast<std::size_t>(row)]; };
  std::sort(order.begin(), order.end(),
            [&](std::int64_t a, std::int64_t b) { return position_of(a) < position_of(b); });
  for (std::int64_t n = 0; n < std::ssize(order); ++n) {
    if (n == 0 || position_of(order[n]) != position_of(order[n - 1])) firsts.push_back(n);
  }
  firsts.push_back(std::ssize(order));
  // A sine takes as long as copying some 16 numbers.
  for_pieces(
      std::ssize(firsts) - 1,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) {
          const auto position = static_cast<double>(position_of(order[firsts[k]]));
          float* row = table.data<float>() + order[firsts[k]] * dim;
          for (std::int64_t i = 0; i < half; ++i) {
            const double angle = position * rates[static_cast<std::size_t>(i)];
            row[i] = static_cast<float>(std::sin(angle));
            row[half + i] = static_cast<float>(std::cos(angle));
          }
          for (std::int64_t n = firsts[k] + 1; n < firsts[k + 1]; ++n)
            std::copy_n(row, dim, table.data<float>() + order[n] * dim);
        }
      },
      16 * dim);
  return table;
}

Var add_positions(const Var& x, const Tensor& positions) {
  const std::int64_t block = positions.count();
  if (x.shape().rank() != 3 || x.size(1) != positions.size(0) || x.size(2) != positions.size(1)) {
    throw InvalidArgument("add_positions", "positions", "[T, D] of x " + to_string(x.shape()),
                          to_string(positions.shape()));
  }
  if (x.size(0) == 1) return autograd::add(x, Var(positions.reshape(x.shape())));
  Tensor repeated(DType::f32, x.shape());
  for_pieces_of_rows(x.size(0), block, [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
    std::copy(positions.data<float>() + begin, positions.data<float>() + end,
              repeated.data<float>() + b * block + begin);
  });
  return autograd::add(x, Var(repeated));
}

}  // namespace fovea::nn
