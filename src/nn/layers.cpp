#include "fovea/nn/layers.h"

#include <algorithm>
#include <cmath>

#include "fovea/plan/plan.h"

namespace fovea::nn {

Linear::Linear(ParameterSet& set, const std::string& name, std::int64_t in, std::int64_t out, Bias with_bias)
    : weight(&set.xavier(name + ".weight", {out, in})),
      bias(with_bias == Bias::with ? &set.constant(name + ".bias", {out}, 0.0f) : nullptr) {}

Var Linear::operator()(Context& context, const Var& x) const {
  return autograd::linear(x, context.use(*weight), bias ? context.use(*bias) : Var());
}

LayerNorm::LayerNorm(ParameterSet& set, const std::string& name, std::int64_t dim)
    : gamma(&set.constant(name + ".weight", {dim}, 1.0f)), beta(&set.constant(name + ".bias", {dim}, 0.0f)) {}

Var LayerNorm::operator()(Context& context, const Var& x) const {
  return autograd::layer_norm(x, context.use(*gamma), context.use(*beta), epsilon);
}

Embedding::Embedding(ParameterSet& set, const std::string& name, std::int64_t vocabulary, std::int64_t dim)
    : table(&set.normal(name + ".weight", {vocabulary, dim}, 1.0f / std::sqrt(static_cast<float>(dim)))) {}

Var Embedding::operator()(Context& context, std::span<const std::int32_t> ids, float factor) const {
  return autograd::embedding(context.use(*table), ids, factor);
}

Recurrent::Recurrent(ParameterSet& set, const std::string& name, autograd::Cell kind, std::int64_t in,
                     std::int64_t hidden)
    : cell(kind) {
  const std::int64_t gates = autograd::gate_count(kind) * hidden;
  input.weight = &set.xavier(name + ".weight_ih", {gates, in});
  input.bias = &set.constant(name + ".bias_ih", {gates}, 0.0f);
  weight = &set.xavier(name + ".weight_hh", {gates, hidden});
  bias = &set.constant(name + ".bias_hh", {gates}, 0.0f);
}

Var Recurrent::sequence(Context& context, const Var& x, autograd::Direction direction, const Var& initial,
                        std::span<const std::int64_t> lengths) const {
  return autograd::cell_sequence(cell, direction, input(context, x), initial, context.use(*weight),
                                 context.use(*bias), lengths);
}

Var Recurrent::step(Context& context, const Var& x, const Var& state) const {
  return autograd::cell_step(cell, input(context, x), state, context.use(*weight), context.use(*bias));
}

MultiHeadAttention::MultiHeadAttention(ParameterSet& set, const std::string& name, std::int64_t dim,
                                       std::int64_t heads, float dropout_rate)
    : query(set, name + ".q_proj", dim, dim),
      key(set, name + ".k_proj", dim, dim),
      value(set, name + ".v_proj", dim, dim),
      output(set, name + ".out_proj", dim, dim),
      num_heads(heads),
      dropout(dropout_rate) {
  if (heads < 1 || dim % heads != 0) {
    throw InvalidArgument("MultiHeadAttention", "num_heads", "a divisor of dim " + std::to_string(dim),
                          std::to_string(heads));
  }
}

namespace {

autograd::AttentionCall engine_call(const MultiHeadAttention& layer, Context& context,
                                    const MultiHeadAttention::Call& call) {
  autograd::AttentionCall engine;
  engine.spec.mask = call.mask;
  engine.num_query_heads = engine.num_kv_heads = layer.num_heads;
  engine.key_lengths = call.key_lengths;
  engine.query_offset = call.query_offset;
  engine.weights = call.weights;
  if (context.training() && layer.dropout > 0.0f) {
    engine.spec.dropout.rate = layer.dropout;
    // A stream of its own: the golden-ratio multiple keeps it apart from the element-wise dropouts of the
    // same step.
    engine.dropout_seed = context.dropout_seed ^ (0x9E3779B97F4A7C15u * ++context.dropout_stream);
  }
  return engine;
}

}  // namespace

Var MultiHeadAttention::operator()(Context& context, const Var& x, const Var& memory,
                                   const Call& call) const {
  const Var q = query(context, x), k = key(context, memory);
  const auto turned = [&](const Var& rows, std::int64_t first) {
    return rope ? autograd::rotate(rows, *rope, num_heads, first) : rows;
  };
  return output(context, autograd::attention(engine_call(*this, context, call), turned(q, call.query_offset),
                                             turned(k, 0), value(context, memory)));
}

Var MultiHeadAttention::attend_projected(Context& context, const Var& x, const ProjectedKeys& keys,
                                         const Call& call) const {
  // The rows in use of a longer buffer are contiguous only for a batch of one, so the engine is called on
  // strided views.
  Var q = query(context, x);
  if (rope) q = autograd::rotate(q, *rope, num_heads, call.query_offset);
  const std::int64_t batch = x.size(0), rows = x.size(1), dim = q.size(2), head_dim = dim / num_heads;
  const std::int64_t value_dim = keys.value.size(2) / num_heads, capacity = keys.key.size(1);
  const autograd::AttentionCall engine = engine_call(*this, context, call);
  const AttentionShape shape{.batch = batch,
                             .num_query_heads = num_heads,
                             .num_kv_heads = num_heads,
                             .query_len = rows,
                             .key_len = keys.length,
                             .head_dim = head_dim,
                             .value_dim = value_dim};
  const AttentionPlan plan = make_plan(engine.spec, shape);
  Tensor result(DType::f32, {batch, rows, num_heads * value_dim});
  const auto heads = [&](const Tensor& tensor, std::int64_t length, std::int64_t reserved,
                         std::int64_t size) {
    const std::int64_t strides[] = {reserved * num_heads * size, size, num_heads * size, 1};
    return TensorView(tensor.raw(), DType::f32, Shape{batch, num_heads, length, size}, strides);
  };
  AttentionOutputs outputs{.output = heads(result, rows, rows, value_dim)};
  if (call.weights) {
    *call.weights = Tensor(DType::f32, {batch, num_heads, rows, keys.length});
    outputs.weights = *call.weights;
  }
  attend(plan,
         AttentionInputs{.query = heads(q.value(), rows, rows, head_dim),
                         .key = heads(keys.key, keys.length, capacity, head_dim),
                         .value = heads(keys.value, keys.length, capacity, value_dim),
                         .key_lengths = call.key_lengths,
                         .query_offset = call.query_offset},
         outputs);
  return output(context, Var(result));
}

namespace {

// Room for `needed` rows: grown by doubling, so that appending one row a step copies each row a constant
// number of times.
void reserve(Tensor& rows, std::int64_t batch, std::int64_t used, std::int64_t needed, std::int64_t capacity,
             std::int64_t dim) {
  if (rows && rows.size(1) >= needed) return;
  const std::int64_t room = std::max({needed, capacity, rows ? 2 * rows.size(1) : 0});
  Tensor grown(DType::f32, {batch, room, dim});
  for (std::int64_t b = 0; rows && b < batch; ++b) {
    std::copy_n(rows.data<float>() + b * rows.size(1) * dim, used * dim,
                grown.data<float>() + b * room * dim);
  }
  rows = grown;
}

void append_rows(Tensor& rows, const Tensor& added, std::int64_t used) {
  const std::int64_t dim = rows.size(2), count = added.size(1);
  for (std::int64_t b = 0; b < added.size(0); ++b) {
    std::copy_n(added.data<float>() + b * count * dim, count * dim,
                rows.data<float>() + (b * rows.size(1) + used) * dim);
  }
}

}  // namespace

void MultiHeadAttention::append(Context& context, const Var& memory, ProjectedKeys& keys,
                                std::int64_t capacity) const {
  Var turned = key(context, memory);
  if (rope) turned = autograd::rotate(turned, *rope, num_heads, keys.read);
  const Tensor k = turned.value(), v = value(context, memory).value();
  reserve(keys.key, k.size(0), keys.length, keys.length + k.size(1), capacity, k.size(2));
  reserve(keys.value, v.size(0), keys.length, keys.length + v.size(1), capacity, v.size(2));
  append_rows(keys.key, k, keys.length);
  append_rows(keys.value, v, keys.length);
  keys.length += k.size(1);
  keys.read += k.size(1);
}

void scale_score(std::initializer_list<Parameter*> matrices, std::int64_t dim) {
  if (matrices.size() == 0) throw InvalidArgument("scale_score", "matrices", "at least one", "none");
  if (dim < 1) throw InvalidArgument("scale_score", "dim", "at least 1", std::to_string(dim));
  const double share = -0.5 / static_cast<double>(matrices.size());
  const auto factor = static_cast<float>(std::pow(static_cast<double>(dim), share));
  for (Parameter* matrix : matrices) {
    float* values = matrix->value.data<float>();
    for (std::int64_t i = 0; i < matrix->value.count(); ++i) values[i] *= factor;
    matrix->rate_factor *= factor;
  }
}

void start_alike(ParameterSet& set) {
  const std::string query = ".q_proj.weight";
  for (const Parameter& parameter : set.all()) {
    if (!parameter.name.ends_with(query)) continue;
    const std::string key = parameter.name.substr(0, parameter.name.size() - query.size()) + ".k_proj.weight";
    const Tensor& to = set.at(key).value;
    if (!(to.shape() == parameter.value.shape()))
      throw InvalidArgument("start_alike", key,
                            "the shape of the queries' projection, " + to_string(parameter.value.shape()),
                            to_string(to.shape()));
    std::copy_n(parameter.value.data<float>(), parameter.value.count(), to.data<float>());
  }
}

void start_passing(ParameterSet& set) {
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

Tensor sinusoidal_positions(std::int64_t first, std::int64_t length, std::int64_t dim, double base) {
  Tensor table = Tensor::zeros(DType::f32, {length, dim});
  const std::int64_t half = dim / 2;
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(first + t) *
                           std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      table.data<float>()[t * dim + i] = static_cast<float>(std::sin(angle));
      table.data<float>()[t * dim + half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

Var add_positions(const Var& x, const Tensor& positions) {
  Tensor repeated(DType::f32, x.shape());
  const std::int64_t block = positions.count();
  if (x.shape().rank() != 3 || x.size(1) != positions.size(0) || x.size(2) != positions.size(1)) {
    throw InvalidArgument("add_positions", "positions", "[T, D] of x " + to_string(x.shape()),
                          to_string(positions.shape()));
  }
  for (std::int64_t b = 0; b < x.size(0); ++b)
    std::copy_n(positions.data<float>(), block, repeated.data<float>() + b * block);
  return autograd::add(x, Var(repeated));
}

}  // namespace fovea::nn
