// Calls with random sizes, masks, offsets and dtypes, on every kernel that runs here. Properties that hold
// for any attention are tested on these.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention/masks.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// The results of attend; weights of all heads and rows.
struct Forward {
  Tensor output, log_sum_exp, weights;
};
/// The gradients of all inputs.
struct Backward {
  Tensor query, key, value;
  NamedTensors arguments;
  /// "score.W", "mods[0].slope"
  const Tensor& operator[](std::string_view name) const {
    for (const auto& [known, tensor] : arguments) {
      if (known == name) return tensor;
    }
    throw std::out_of_range(std::string(name));
  }
};

/// A random mask over these sites. Outside of them it may hide everything.
inline Mask drawn_mask(PhiloxStream& random, const Predicate::Sites& sites) {
  const std::int64_t batch = sites.batch, key_len = sites.key_len;
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.next_below(static_cast<std::uint32_t>(bound)));
  };
  switch (below(10)) {
    case 0:
      return Causal{};
    case 1:
      return SlidingWindow{.lookback = below(20), .lookahead = below(20)};
    case 2:
      return (Causal{} & SlidingWindow{.lookback = below(9)}) | GlobalTokens{0, below(key_len)};
    case 3:
      return Chunked{1 + below(30)};
    case 4:
      return Strided{1 + below(5)} & Causal{};
    case 5:
      return Prefix{{below(key_len + 1)}};
    case 6: {
      std::vector<std::int64_t> lengths;
      for (std::int64_t b = 0; b < batch; ++b) lengths.push_back(below(key_len + 1));
      return KeyLengths{lengths};
    }
    case 7:
      return ~Mask(SlidingWindow{.lookback = below(3), .lookahead = below(3)});
    case 8:
      return Predicate("by-head", sites, [&](const Site& at) { return below(2 + at.head) == 0; });
    default:
      return Everything{};
  }
}

struct Draw {
  std::uint64_t seed;
  std::string kernel;
  DType dtype;
  std::int64_t batch, heads, kv_heads, query_len, key_len, head_dim, value_dim, offset;
  Mask mask = Everything{};
  Tensor query, key, value, d_output;
  mutable PhiloxStream random;

  Draw(std::uint64_t number, std::string name)
      : seed(number), kernel(std::move(name)), random(1000 + number) {
    dtype = seed % 2 ? DType::f64 : DType::f32;
    batch = 1 + below(2);
    kv_heads = 1 + below(2);
    heads = kv_heads * (1 + below(3));
    // Short and long lengths, below and above the 48 queries and 128 keys of a tile.
    const std::int64_t longest = seed % 5 == 0 ? 150 : 12;
    query_len = 1 + below(longest);
    key_len = 1 + below(longest);
    head_dim = 1 + below(20);
    value_dim = 1 + below(20);
    const std::int64_t offsets[] = {key_len - query_len, 0, below(key_len + 8) - 4};
    offset = offsets[below(3)];
    mask = drawn_mask(random, {.batch = batch,
                               .heads = heads,
                               .query_begin = std::min<std::int64_t>(offset, 0),
                               .query_end = std::max<std::int64_t>(offset, 0) + query_len,
                               .key_len = key_len});
    query = tensor({batch, heads, query_len, head_dim});
    key = tensor({batch, kv_heads, key_len, head_dim});
    value = tensor({batch, kv_heads, key_len, value_dim});
    d_output = tensor({batch, heads, query_len, value_dim});
  }

  std::int64_t below(std::int64_t bound) const {
    return static_cast<std::int64_t>(random.next_below(static_cast<std::uint32_t>(bound)));
  }
  /// Random elements, different in each call.
  Tensor tensor(Shape shape) const { return random_tensor(dtype, shape, (seed << 32) + random.next_u32()); }
  std::vector<std::int64_t> permutation(std::int64_t count) const {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = below(i + 1);
      order.push_back(i);
      std::swap(order[static_cast<std::size_t>(at)], order.back());
    }
    return order;
  }
  /// 16 roundings for each product and each term of a row's sums; all terms are of order 1.
  double tolerance() const {
    const double eps = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
    return 16 * eps * static_cast<double>(key_len + head_dim + value_dim);
  }
  /// The tolerance of gradients: dP is a sum of value_dim terms, and gradients of keys are sums over queries.
  double gradient_tolerance() const {
    const double eps = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
    return 16 * eps * static_cast<double>((key_len + head_dim + value_dim + query_len) * value_dim);
  }
  std::string name() const {
    return "draw " + std::to_string(seed) + " on " + kernel + ": " + std::string(to_string(dtype)) + " b" +
           std::to_string(batch) + " h" + std::to_string(heads) + "/" + std::to_string(kv_heads) + " q" +
           std::to_string(query_len) + " k" + std::to_string(key_len) + " d" + std::to_string(head_dim) +
           "/" + std::to_string(value_dim) + " offset " + std::to_string(offset) + " " + to_string(mask);
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t j) const {
    return mask.node().allows(Site::at(b, h, row + offset, j), {.batch = b, .head = h, .key_len = key_len});
  }
  /// The number of keys that a row sees.
  std::int64_t seen(std::int64_t b, std::int64_t h, std::int64_t row) const {
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < key_len; ++j) count += visible(b, h, row, j) ? 1 : 0;
    return count;
  }
  /// Calls f(batch entry, head, row, number of the row among all) for every row.
  template <class F>
  void each_row(F&& f) const {
    std::int64_t number = 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t r = 0; r < query_len; ++r) f(b, h, r, number++);
      }
    }
  }
  /// A mask over `keys` keys, given by the row of the call: visible(batch entry, head, row, key). The first
  /// row has `position`.
  template <class F>
  Mask mask_of(std::int64_t keys, F&& visible, std::int64_t position) const {
    return Predicate("drawn",
                     {.batch = batch,
                      .heads = heads,
                      .query_begin = position,
                      .query_end = position + query_len,
                      .key_len = keys},
                     [&](const Site& at) { return visible(at.batch, at.head, at.query - position, at.key); });
  }
  template <class F>
  Mask mask_of(std::int64_t keys, F&& visible) const {
    return mask_of(keys, visible, offset);
  }

  AttentionInputs inputs() const {
    AttentionInputs in{.query = query, .key = key, .value = value};
    in.query_offset = offset;
    in.sample_seed = seed;
    return in;
  }
  /// A plan for the sizes of the inputs.
  AttentionPlan plan(const AttentionSpec& spec, const AttentionInputs& in) const {
    return make_plan(spec,
                     {.batch = in.query.size(0),
                      .num_query_heads = in.query.size(1),
                      .num_kv_heads = in.value ? in.value.size(1) : in.key.size(1),
                      .query_len = in.query.size(2),
                      .key_len = in.value ? in.value.size(2) : in.key.size(2),
                      .head_dim = in.query.size(3),
                      .value_dim = in.value ? in.value.size(3) : 0,
                      .key_dim = in.key ? in.key.size(3) : 0,
                      .hidden = hidden_of(spec.score, in.arguments)},
                     {.dtype = dtype, .precision = Precision::higher, .kernel = kernel});
  }
  Forward forward(const AttentionSpec& spec, const AttentionInputs& in) const {
    const AttentionPlan plan = this->plan(spec, in);
    const AttentionShape& s = plan.shape();
    Forward result{unwritten(dtype, {s.batch, s.num_query_heads, s.query_len, s.value_dim}),
                   unwritten(dtype, {s.batch, s.num_query_heads, s.query_len}),
                   unwritten(dtype, {s.batch, s.num_query_heads, s.query_len, s.key_len})};
    attend(plan, in, {.output = result.output, .log_sum_exp = result.log_sum_exp, .weights = result.weights});
    return result;
  }
  /// The gradients for d_output. `result` are the forward results of the same inputs. HardArgmax: of the
  /// values alone.
  Backward backward(const AttentionSpec& spec, const AttentionInputs& in, const Forward& result,
                    const ConstTensorView& by_output, const ConstTensorView& advantage = {}) const {
    Backward all;
    const auto wanted = [](const ConstTensorView& view, Tensor& tensor) {
      if (!view) return TensorView();
      tensor = unwritten(view.dtype(), view.shape());
      return tensor.view();
    };
    AttentionGradients g;
    g.value = wanted(in.value, all.value);
    const bool by_scores = !std::holds_alternative<HardArgmax>(spec.normalizer);
    if (by_scores) {
      g.query = wanted(in.query, all.query);
      g.key = wanted(in.key, all.key);
    }
    for (const NamedArgument<ConstTensorView>& argument : in.arguments.all()) {
      if (!by_scores && !argument.name.starts_with("weight_mods[")) continue;
      Tensor gradient;
      g.arguments.set(argument.name, wanted(argument.view, gradient));
      all.arguments.emplace_back(argument.name, gradient);
    }
    AttentionLoss loss;
    loss.output = result.output;
    loss.log_sum_exp = result.log_sum_exp;
    loss.d_output = by_output;
    if (std::holds_alternative<HardSample>(spec.normalizer))
      loss.advantage = advantage;  // only HardSample takes one
    attend_backward(plan(spec, in), in, loss, g);
    return all;
  }
};

/// Runs test(draw) for so many draws on every kernel. Ends at the first failure.
template <class Test>
void for_draws(std::uint64_t count, Test&& test) {
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    for (const KernelInfo& info : instruction_sets()) {
      if (!info.available) continue;
      const Draw draw(seed, info.isa);
      SCOPED_TRACE(draw.name());
      test(draw);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// Selects indices: index i of axis `axis` is index order[i] of x. `order` may be longer or shorter than the
/// axis.
inline Tensor taken(const Tensor& x, int axis, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> sizes(x.shape().sizes().begin(), x.shape().sizes().end());
  std::int64_t inside = 1, outside = 1;
  for (int a = 0; a < axis; ++a) outside *= x.size(a);
  for (int a = axis + 1; a < x.rank(); ++a) inside *= x.size(a);
  const auto count = static_cast<std::int64_t>(order.size()), from = x.size(axis);
  sizes[static_cast<std::size_t>(axis)] = count;
  Tensor y(x.dtype(), Shape(std::span<const std::int64_t>(sizes)));
  for (std::int64_t o = 0; o < outside; ++o) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < inside; ++d)
        set_element(y, (o * count + i) * inside + d,
                    element(x, (o * from + order[static_cast<std::size_t>(i)]) * inside + d));
    }
  }
  return y;
}

/// The gradient of `taken`: index order[i] of axis `axis` is the sum of those indices i of x.
inline Tensor given_back(const Tensor& x, int axis, const std::vector<std::int64_t>& order, std::int64_t to) {
  std::vector<std::int64_t> sizes(x.shape().sizes().begin(), x.shape().sizes().end());
  std::int64_t inside = 1, outside = 1;
  for (int a = 0; a < axis; ++a) outside *= x.size(a);
  for (int a = axis + 1; a < x.rank(); ++a) inside *= x.size(a);
  sizes[static_cast<std::size_t>(axis)] = to;
  const auto count = static_cast<std::int64_t>(order.size());
  Tensor y = Tensor::zeros(x.dtype(), Shape(std::span<const std::int64_t>(sizes)));
  for (std::int64_t o = 0; o < outside; ++o) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < inside; ++d) {
        const std::int64_t at = (o * to + order[static_cast<std::size_t>(i)]) * inside + d;
        set_element(y, at, element(y, at) + element(x, (o * count + i) * inside + d));
      }
    }
  }
  return y;
}

/// scale·q·k of every query and key: [batch, heads, query_len, key_len] in double.
inline std::vector<double> products(const Draw& draw, double scale) {
  std::vector<double> scores;
  draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t row) {
    const std::int64_t kv = b * draw.kv_heads + h / (draw.heads / draw.kv_heads);
    for (std::int64_t j = 0; j < draw.key_len; ++j) {
      double sum = 0.0;
      for (std::int64_t d = 0; d < draw.head_dim; ++d)
        sum += element(draw.query, row * draw.head_dim + d) *
               element(draw.key, (kv * draw.key_len + j) * draw.head_dim + d);
      scores.push_back(scale * sum);
    }
  });
  return scores;
}

/// The same elements plus c.
inline Tensor shifted(const Tensor& x, double c) {
  const Tensor y = x.clone();
  for (std::int64_t i = 0; i < y.count(); ++i) set_element(y, i, element(y, i) + c);
  return y;
}

inline double distance_of(const Tensor& a, const Tensor& b) {
  double most = 0.0;
  for (std::int64_t i = 0; i < a.count(); ++i) most = std::max(most, std::abs(element(a, i) - element(b, i)));
  return most;
}

inline void expect_near(const Forward& got, const Forward& want, double tolerance) {
  expect_near(got.output, want.output, tolerance, "output");
  expect_near(got.log_sum_exp, want.log_sum_exp, tolerance, "log_sum_exp");
  expect_near(got.weights, want.weights, tolerance, "weights");
}

}  // namespace fovea::testing
