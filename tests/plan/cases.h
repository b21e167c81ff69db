// One case of the shared case table (case_table.h), its operands, and its call, forward and backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/attention/mask_definition.h"
#include "fovea/attention/mod_node.h"
#include "fovea/attention/score_definition.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"
#include "plan/layouts.h"

namespace fovea::testing {

struct Case {
  std::string name;
  AttentionSpec spec;
  AttentionShape shape;
  std::vector<std::int64_t> key_lengths;  // for KeyLengths{}
  std::optional<std::int64_t> query_offset;
  std::vector<std::int64_t> query_offsets;  // one a batch entry, instead of query_offset
  /// The shape of each argument of spec.mods; none: as their declarations say (argument_shape).
  std::vector<Shape> mod_arguments;
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;  // of query, key, value, output and their gradients
  bool score_gradients = true;  // false: only values have gradients, since the weights do not change with the
                                // scores
  std::vector<Shape> weight_mod_arguments;  // the same of spec.weight_mods
  // The loss also depends on the returned weights: all of them, or chosen heads and rows.
  bool loss_of_weights = false;
  std::vector<std::int64_t> weight_heads, weight_rows;

  /// The same case with fewer queries and keys.
  Case with_lengths(std::int64_t queries, std::int64_t keys) const {
    Case smaller = *this;
    smaller.shape.query_len = queries;
    smaller.shape.key_len = keys;
    for (std::vector<Shape>* list : {&smaller.mod_arguments, &smaller.weight_mod_arguments}) {
      for (Shape& sizes : *list) {
        sizes = {sizes[0], sizes[1], sizes[2] > 1 ? queries : sizes[2],
                 sizes[3] > 1 && sizes[3] == shape.key_len ? keys : sizes[3]};
      }
    }
    for (std::int64_t& length : smaller.key_lengths) length = std::min(length, keys);
    for (std::int64_t& row : smaller.weight_rows) row = std::min(row, queries - 1);
    return smaller;
  }
  /// The position of query row 0 of batch entry b.
  std::int64_t offset(std::int64_t b) const {
    return query_offsets.empty() ? query_offset.value_or(shape.key_len - shape.query_len)
                                 : query_offsets.at(static_cast<std::size_t>(b));
  }
  LossOf loss_of() const { return loss_of_weights ? LossOf::weights : LossOf::output; }
  std::int64_t weight_slots(const std::vector<std::int64_t>& list, std::int64_t all) const {
    return list.empty() ? all : static_cast<std::int64_t>(list.size());
  }
};

/// The elements of a tensor whose dtype is T's. Tensor::data makes a view at each call, which took a third of
/// the time of some tests.
template <class T>
T* elements(const Tensor& t) {
  return reinterpret_cast<T*>(t.raw());
}
inline double element(const Tensor& t, std::int64_t i) {
  switch (t.dtype()) {
    case DType::f32:
      return elements<float>(t)[i];
    case DType::f64:
      return elements<double>(t)[i];
    case DType::bf16:
      return static_cast<double>(static_cast<float>(elements<bfloat16>(t)[i]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(elements<float16>(t)[i]));
  }
  return 0.0;
}
inline void set_element(const Tensor& t, std::int64_t i, double value) {
  switch (t.dtype()) {
    case DType::f32:
      elements<float>(t)[i] = static_cast<float>(value);
      break;
    case DType::f64:
      elements<double>(t)[i] = value;
      break;
    case DType::bf16:
      elements<bfloat16>(t)[i] = bfloat16(static_cast<float>(value));
      break;
    case DType::f16:
      elements<float16>(t)[i] = float16(static_cast<float>(value));
      break;
  }
}

/// Uniform in [-1, 1), a function of the seed.
inline Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  PhiloxStream random(seed);
  const std::int64_t count = tensor.count();
  for (std::int64_t i = 0; i < count; ++i) set_element(tensor, i, 2.0 * random.next_uniform() - 1.0);
  return tensor;
}

/// The sizes that declarations of arguments refer to.
inline ArgumentSizes argument_sizes(const AttentionShape& s) {
  return {.batch = s.batch,
          .num_query_heads = s.num_query_heads,
          .query_len = s.query_len,
          .key_len = s.key_len,
          .query_dim = s.head_dim,
          .key_dim = s.key_dim ? s.key_dim : s.head_dim,
          .hidden = s.hidden};
}

/// The largest shape that the declaration allows, but for axes that may have any length: they have two rows
/// more than needed. Where one tensor a query head is allowed, it has them if there are several heads.
inline Shape argument_shape(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes) {
  std::vector<std::int64_t> axes;
  if (declaration.by_head && sizes.num_query_heads > 1) axes.push_back(sizes.num_query_heads);
  for (const ArgumentAxis& axis : declaration.axes)
    axes.push_back(axis.of(sizes) + (axis.fit == ArgumentAxis::Fit::at_least ? 2 : 0));
  return Shape(std::span<const std::int64_t>(axes));
}

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct Operands {
  Tensor query, key, value, d_output;
  std::vector<std::int64_t> key_lengths;
  Tensor advantage, d_weights;
  NamedTensors arguments;  // in the order of declared_arguments

  Operands(const Case& c, DType dtype) {
    if (c.spec.mask.node().needs_key_lengths()) key_lengths = c.key_lengths;
    const AttentionShape& s = c.shape;
    const std::int64_t key_dim = s.key_dim ? s.key_dim : s.head_dim;
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    query = random_tensor(dtype, {s.batch, s.num_query_heads, s.query_len, s.head_dim}, 1);
    if (definition(c.spec.score).key_rows < 0)
      key = random_tensor(dtype, {s.batch, s.num_kv_heads, s.key_len, key_dim}, 2);
    value = random_tensor(dtype, {s.batch, s.num_kv_heads, s.key_len, s.value_dim}, 3);
    d_output = random_tensor(dtype, {s.batch, s.num_query_heads, s.query_len, s.value_dim}, 4);
    if (std::holds_alternative<HardSample>(c.spec.normalizer))
      advantage = random_tensor(wide, {s.batch, s.num_query_heads, s.query_len}, 12);
    if (c.loss_of_weights) {
      d_weights = random_tensor(wide,
                                {s.batch, c.weight_slots(c.weight_heads, s.num_query_heads),
                                 c.weight_slots(c.weight_rows, s.query_len), s.key_len},
                                13);
    }
    // A case may give the arguments of mods other shapes, which share axes in different ways.
    std::size_t mod = 0, weight_mod = 0;
    for (const auto& [name, declaration] : declared_arguments(c.spec)) {
      const bool of_mods = name.starts_with("mods[") && !c.mod_arguments.empty();
      const bool of_weight_mods = name.starts_with("weight_mods[") && !c.weight_mod_arguments.empty();
      const Shape shape = of_mods          ? c.mod_arguments.at(mod++)
                          : of_weight_mods ? c.weight_mod_arguments.at(weight_mod++)
                                           : argument_shape(declaration, argument_sizes(s));
      arguments.emplace_back(name, random_tensor(wide, shape, 20 + arguments.size()));
      // What starts as one is a factor or a divisor. In [0.5, 2.5) it multiplies errors by at most 2.5.
      if (declaration.start != ArgumentDeclaration::Start::one) continue;
      const Tensor& factor = arguments.back().second;
      for (std::int64_t i = 0; i < factor.count(); ++i) set_element(factor, i, 1.5 + element(factor, i));
    }
  }
  /// The loss of a call that wrote `output` and `log_sum_exp`.
  AttentionLoss loss(const Case& c, ConstTensorView output, ConstTensorView log_sum_exp) const {
    AttentionLoss loss;
    loss.output = output;
    loss.log_sum_exp = log_sum_exp;
    loss.d_output = d_output;
    if (d_weights) loss.d_weights = d_weights;
    loss.weight_heads = c.weight_heads;
    loss.weight_rows = c.weight_rows;
    if (advantage) loss.advantage = advantage;
    return loss;
  }
  AttentionInputs inputs(const Case& c) const {
    AttentionInputs in{.query = query,
                       .key = key ? ConstTensorView(key) : ConstTensorView(),
                       .value = value,
                       .key_lengths = key_lengths,
                       .query_offset = c.query_offset,
                       .query_offsets = c.query_offsets,
                       .dropout_seed = 42,
                       .sample_seed = 43};
    for (const auto& [name, argument] : arguments) in.arguments.set(name, argument);
    return in;
  }
};

struct Results {
  Tensor output, log_sum_exp, weights, d_query, d_key, d_value;
  NamedTensors d_arguments;  // of the arguments that have a gradient
  NamedTensors all() const {
    NamedTensors list{{"output", output},   {"log_sum_exp", log_sum_exp},
                      {"weights", weights}, {"d_query", d_query},
                      {"d_key", d_key},     {"d_value", d_value}};
    list.insert(list.end(), d_arguments.begin(), d_arguments.end());
    return list;
  }
};

/// The instruction sets, best first, each with its first algorithm.
inline std::vector<KernelInfo> instruction_sets() {
  std::vector<KernelInfo> sets;
  for (const KernelInfo& info : list_kernels()) {
    const auto same = [&info](const KernelInfo& other) { return other.isa == info.isa; };
    if (std::none_of(sets.begin(), sets.end(), same)) sets.push_back(info);
  }
  return sets;
}

/// Whether this instruction set has a kernel for the case. Where it has none the reference runs.
inline bool has_kernel(const Case& c, DType dtype, const std::string& isa) {
  const AttentionPlan plan =
      make_plan(c.spec, c.shape, {.dtype = dtype, .precision = Precision::higher, .kernel = isa});
  return isa == "reference" || plan.kernel() != "reference" || plan.backward_kernel() != "reference";
}

/// Runs forward and backward. Results begin as NaN, so that an element that is never written is noticed.
inline Results run_case(const Case& c, const Operands& o, DType dtype, const std::string& kernel,
                        Executor* executor = nullptr) {
  // Precision as exact as f32. Tile kernels then take f32 too, in six products; the other kernels ignore it.
  const AttentionPlan plan =
      make_plan(c.spec, c.shape, {.dtype = dtype, .precision = Precision::higher, .kernel = kernel});
  const AttentionShape& s = c.shape;
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto like = [&](const Tensor& t) {
    if (!t) return Tensor();
    Tensor result(t.dtype(), t.shape());
    result.fill(nan);
    return result;
  };
  Results r;
  r.output = like(o.d_output);
  r.log_sum_exp = Tensor(wide, {s.batch, s.num_query_heads, s.query_len});
  r.log_sum_exp.fill(nan);
  r.weights = Tensor(wide, {s.batch, c.weight_slots(c.weight_heads, s.num_query_heads),
                            c.weight_slots(c.weight_rows, s.query_len), s.key_len});
  r.weights.fill(nan);
  // The workspace has exactly the promised size and is full of NaN. A sanitizer then sees a kernel that takes
  // more.
  const int threads = executor ? executor->thread_count() : default_executor().thread_count();
  std::vector<std::byte> memory(
      std::max(workspace_bytes(plan, threads), backward_workspace_bytes(plan, threads, c.loss_of())) + 63,
      std::byte{0xff});
  const CallResources resources{executor, memory};
  const auto there = [](const Tensor& tensor, const Tensor& other) {
    return tensor ? tensor : other.clone();
  };
  const Placement operands(c.layout, {o.query, there(o.key, o.value), o.value}), output(c.layout, {r.output}),
      d_output(c.layout, {o.d_output});
  AttentionInputs in = o.inputs(c);
  in.query = operands.view(0);
  if (o.key) in.key = operands.view(1);
  in.value = operands.view(2);
  attend(plan, in,
         {.output = output.view(0),
          .log_sum_exp = r.log_sum_exp,
          .weights = r.weights,
          .weight_heads = c.weight_heads,
          .weight_rows = c.weight_rows},
         resources);
  output.read_back();
  r.d_query = like(o.query);
  r.d_key = like(o.key);
  r.d_value = like(o.value);
  const Placement gradients(c.layout, {r.d_query, there(r.d_key, r.d_value), r.d_value});
  AttentionGradients g{.value = gradients.view(2)};
  if (c.score_gradients) {
    g.query = gradients.view(0);
    if (o.key) g.key = gradients.view(1);
  } else {
    r.d_query = r.d_key = Tensor();
  }
  for (const auto& [name, argument] : o.arguments) {
    if (!c.score_gradients && !name.starts_with("weight_mods[")) continue;
    r.d_arguments.emplace_back(name, like(argument));
    g.arguments.set(name, r.d_arguments.back().second);
  }
  AttentionLoss loss = o.loss(c, output.view(0), r.log_sum_exp);
  loss.d_output = d_output.view(0);
  attend_backward(plan, in, loss, g, resources);
  gradients.read_back();
  return r;
}

}  // namespace fovea::testing
