// Packed batches of the shared case table, and padded calls that compute the same entries.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plan/case_table.h"
#include "plan/differences.h"

namespace fovea::testing {

/// Five entries of at most the case's lengths: one of full length, one decoding step, one without queries,
/// one without keys, and one in between.
struct PackedCase {
  Case padded;
  std::vector<std::int64_t> queries, keys;

  explicit PackedCase(Case c) : padded(std::move(c)) {
    const std::int64_t q = padded.shape.query_len, k = padded.shape.key_len;
    queries = {1, q, 0, std::min<std::int64_t>(q, 3), q / 2 + 1};
    keys = {k, k / 2 + 1, k / 2, 0, k};
    padded.weight_rows.clear();
    for (std::size_t e = 0; e < padded.key_lengths.size(); ++e)
      padded.key_lengths[e] = std::min(padded.key_lengths[e], keys[e]);
  }
  static std::vector<std::int64_t> starts(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> list{0};
    for (const std::int64_t length : lengths) list.push_back(list.back() + length);
    return list;
  }
};

/// The case table with batches of five and few rows.
inline std::vector<PackedCase> packed_cases() {
  std::vector<Factor> factors = case_factors(Shapes::cheap);
  struct Sizes {
    std::int64_t heads, kv_heads, queries, keys, dim, value_dim;
  };
  Factor shape{"shape", {}};
  for (const Sizes& s : {Sizes{2, 2, 5, 7, 8, 8},
                         {4, 2, 3, 40, 8, 12},
                         {1, 1, 20, 33, 5, 3},
                         {2, 1, 17, 17, 16, 4},
                         {2, 2, 50, 19, 12, 8},
                         {2, 1, 4, 260, 4, 4}}) {
    const auto text = [](std::int64_t n) { return std::to_string(n); };
    shape.levels.push_back({"b5 h" + text(s.heads) + "/" + text(s.kv_heads) + " q" + text(s.queries) + " k" +
                                text(s.keys) + " d" + text(s.dim) + "/" + text(s.value_dim),
                            [s](Case& c) {
                              c.shape = {5, s.heads, s.kv_heads, s.queries, s.keys, s.dim, s.value_dim};
                              c.key_lengths = {s.keys - 1, s.keys / 3, 2, 0, s.keys / 2};
                            }});
  }
  factors.front() = shape;
  std::vector<PackedCase> cases;
  for (const Case& c : pairwise_cases(factors)) cases.emplace_back(c);
  return cases;
}

/// [1, heads, Σ lengths, ...] ← the first rows of each entry of [entries, heads, rows, ...].
inline Tensor packed_rows(const Tensor& padded, const std::vector<std::int64_t>& lengths) {
  if (!padded) return {};
  const std::int64_t heads = padded.size(1), rows = padded.size(2);
  const auto width =
      padded.bytes() / static_cast<std::size_t>(std::max<std::int64_t>(padded.size(0) * heads * rows, 1));
  const std::int64_t all = PackedCase::starts(lengths).back();
  const Tensor result(padded.dtype(),
                      padded.rank() == 3 ? Shape{1, heads, all} : Shape{1, heads, all, padded.size(3)});
  std::byte* to = result.raw();
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::size_t e = 0; e < lengths.size(); ++e) {
      const auto bytes = static_cast<std::size_t>(lengths[e]) * width;
      std::memcpy(
          to,
          padded.raw() + static_cast<std::size_t>((static_cast<std::int64_t>(e) * heads + h) * rows) * width,
          bytes);
      to += bytes;
    }
  }
  return result;
}

/// The first rows and columns of every entry, contiguous; 0 in entries other than `kept`, if it is given.
inline Tensor cut(const Tensor& padded, const Shape& shape, std::optional<std::int64_t> kept = {}) {
  if (!padded) return {};
  Tensor result = Tensor::zeros(padded.dtype(), shape);
  for (std::int64_t i = 0; i < result.count(); ++i) {
    std::int64_t rest = i, at = 0, step = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += rest % shape[axis] * step;
      rest /= shape[axis];
      step *= padded.size(axis);
    }
    if (kept && i / (shape.count() / shape[0]) != *kept) continue;
    set_element(result, i, element(padded, at));
  }
  return result;
}

inline AttentionPlan plan_of(const Case& c, const std::string& kernel) {
  return make_plan(c.spec, c.shape, {.dtype = c.dtype, .precision = Precision::higher, .kernel = kernel});
}
inline DType wide_of(const Case& c) {
  return c.dtype == DType::f64 ? DType::f64 : DType::f32;
}
inline bool wants_gradient(const Case& c, const std::string& argument) {
  return c.score_gradients || argument.starts_with("weight_mods[");
}

/// Runs the packed call, forward and backward, in a workspace of exactly the promised bytes.
inline Results run_packed(const PackedCase& p, const Operands& o, const std::string& kernel,
                          Executor& executor) {
  const Case& c = p.padded;
  const AttentionShape& s = c.shape;
  const AttentionPlan plan = plan_of(c, kernel);
  const std::vector<std::int64_t> query_starts = PackedCase::starts(p.queries),
                                  key_starts = PackedCase::starts(p.keys);
  const auto memory_of = [](std::size_t bytes) {
    return std::vector<std::byte>(bytes + 63, std::byte{0xff});
  };
  const int threads = executor.thread_count();
  std::vector<std::byte> forward = memory_of(workspace_bytes(plan, threads)),
                         backward = memory_of(backward_workspace_bytes(plan, threads, c.loss_of()));
  const Tensor query = packed_rows(o.query, p.queries), key = packed_rows(o.key, p.keys),
               value = packed_rows(o.value, p.keys), d_output = packed_rows(o.d_output, p.queries),
               advantage = packed_rows(o.advantage, p.queries),
               d_weights = packed_rows(o.d_weights, p.queries);
  // Elements behind an entry's keys are not read.
  for (std::int64_t n = 0; d_weights && n < d_weights.count(); ++n) {
    const std::int64_t row = n / s.key_len % query_starts.back();
    std::size_t e = 0;
    while (row >= query_starts[e + 1]) ++e;
    if (n % s.key_len >= p.keys[e]) set_element(d_weights, n, NAN);
  }
  const auto there = [](const Tensor& tensor, const Tensor& other) {
    return tensor ? tensor : other.clone();
  };
  Results r;
  r.output = unwritten_like(d_output);
  r.log_sum_exp = unwritten(wide_of(c), {1, s.num_query_heads, query_starts.back()});
  r.weights = unwritten(
      wide_of(c), {1, c.weight_slots(c.weight_heads, s.num_query_heads), query_starts.back(), s.key_len});
  const Placement operands(c.layout, {query, there(key, value), value}), output(c.layout, {r.output}),
      by_output(c.layout, {d_output});
  AttentionInputs in = o.inputs(c);
  in.query = operands.view(0);
  if (key) in.key = operands.view(1);
  in.value = operands.view(2);
  in.query_starts = query_starts;
  in.key_starts = key_starts;
  attend(plan, in,
         {.output = output.view(0),
          .log_sum_exp = r.log_sum_exp,
          .weights = r.weights,
          .weight_heads = c.weight_heads},
         {&executor, forward});
  output.read_back();
  r.d_query = unwritten_like(query);
  if (key) r.d_key = unwritten_like(key);
  r.d_value = unwritten_like(value);
  const Placement gradients(c.layout, {r.d_query, there(r.d_key, r.d_value), r.d_value});
  AttentionGradients g{.value = gradients.view(2)};
  if (c.score_gradients) g.query = gradients.view(0);
  if (c.score_gradients && key) g.key = gradients.view(1);
  for (const auto& [name, argument] : o.arguments) {
    if (!wants_gradient(c, name)) continue;
    r.d_arguments.emplace_back(name, unwritten_like(argument));
    g.arguments.set(name, r.d_arguments.back().second);
  }
  AttentionLoss loss = o.loss(c, output.view(0), r.log_sum_exp);
  loss.d_output = by_output.view(0);
  if (advantage) loss.advantage = advantage;
  if (d_weights) loss.d_weights = d_weights;
  attend_backward(plan, in, loss, g, {&executor, backward});
  gradients.read_back();
  if (!c.score_gradients) r.d_query = r.d_key = Tensor();
  return r;
}

/// A padded call of all entries, cut to the lengths of entry e, with the loss of that entry alone. Gradients
/// of arguments are added to `sums`, in f64 and in the arguments' full shapes.
inline Results run_padded(const PackedCase& p, const Operands& o, std::int64_t e, const std::string& kernel,
                          NamedTensors& sums) {
  const auto n = static_cast<std::size_t>(e);
  Case c = p.padded;
  const AttentionShape whole = c.shape;
  c.shape.query_len = p.queries[n];
  c.shape.key_len = p.keys[n];
  for (std::int64_t& length : c.key_lengths) length = std::min(length, p.keys[n]);
  const AttentionShape& s = c.shape;
  const AttentionPlan plan = plan_of(c, kernel);
  const auto rows = [&](const Tensor& t, std::int64_t length) {
    return t ? cut(t, {t.size(0), t.size(1), length, t.size(3)}) : Tensor();
  };
  const Tensor query = rows(o.query, s.query_len), key = rows(o.key, s.key_len),
               value = rows(o.value, s.key_len),
               d_output = cut(o.d_output, {s.batch, s.num_query_heads, s.query_len, s.value_dim}, e);
  Results r;
  r.output = unwritten_like(d_output);
  r.log_sum_exp = unwritten(wide_of(c), {s.batch, s.num_query_heads, s.query_len});
  r.weights = unwritten(wide_of(c),
                        {s.batch, c.weight_slots(c.weight_heads, s.num_query_heads), s.query_len, s.key_len});
  AttentionInputs in = o.inputs(c);
  if (c.spec.mask.node().needs_key_lengths()) in.key_lengths = c.key_lengths;
  in.query = query;
  if (key) in.key = key;
  in.value = value;
  r.d_query = unwritten_like(query);
  if (key) r.d_key = unwritten_like(key);
  r.d_value = unwritten_like(value);
  AttentionGradients g{.value = r.d_value};
  if (c.score_gradients) g.query = r.d_query;
  if (c.score_gradients && key) g.key = r.d_key;
  in.arguments = {};
  for (const auto& [name, argument] : o.arguments) {
    Shape shape = argument.shape();
    if (name.find("mods[") != name.npos) {
      const auto axis = [](std::int64_t size, std::int64_t all, std::int64_t own) {
        return size > 1 && size == all ? own : size;  // no table has as many entries as a case has keys
      };
      shape = {shape[0], shape[1], axis(shape[2], whole.query_len, s.query_len),
               axis(shape[3], whole.key_len, s.key_len)};
    }
    const Tensor part = cut(argument, shape);
    in.arguments.set(name, part);
    if (!wants_gradient(c, name)) continue;
    r.d_arguments.emplace_back(name, unwritten_like(part));
    g.arguments.set(name, r.d_arguments.back().second);
  }
  attend(plan, in,
         {.output = r.output,
          .log_sum_exp = r.log_sum_exp,
          .weights = r.weights,
          .weight_heads = c.weight_heads});
  AttentionLoss loss = o.loss(c, r.output, r.log_sum_exp);
  loss.d_output = d_output;
  const Tensor advantage = cut(o.advantage, {s.batch, s.num_query_heads, s.query_len}, e),
               d_weights = cut(o.d_weights, r.weights.shape(), e);
  if (advantage) loss.advantage = advantage;
  if (d_weights) loss.d_weights = d_weights;
  attend_backward(plan, in, loss, g);
  if (!c.score_gradients) r.d_query = r.d_key = Tensor();
  for (std::size_t a = 0; a < r.d_arguments.size(); ++a) {
    const Tensor &part = r.d_arguments[a].second, &sum = sums[a].second;
    for (std::int64_t i = 0; i < part.count(); ++i) {
      std::int64_t rest = i, at = 0, step = 1;
      for (int axis = part.rank() - 1; axis >= 0; --axis) {
        at += rest % part.size(axis) * step;
        rest /= part.size(axis);
        step *= sum.size(axis);
      }
      set_element(sum, at, element(sum, at) + element(part, i));
    }
  }
  return r;
}

}  // namespace fovea::testing
