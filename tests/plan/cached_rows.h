// Rows, plans and comparisons of calls whose keys and values are in a cache.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/executor.h"
#include "fovea/plan/plan.h"

namespace fovea::cached {

struct Sizes {
  std::int64_t num_query_heads = 4, num_kv_heads = 2, head_dim = 20, value_dim = 12;
};

inline Tensor as(DType dtype, const Tensor& x) {
  if (dtype == x.dtype()) return x;
  Tensor result(dtype, x.shape());
  for (std::int64_t n = 0; n < x.count(); ++n) {
    if (dtype == DType::bf16) result.data<bfloat16>()[n] = bfloat16(x.data<float>()[n]);
    if (dtype == DType::f16) result.data<float16>()[n] = float16(x.data<float>()[n]);
    if (dtype == DType::f64) result.data<double>()[n] = static_cast<double>(x.data<float>()[n]);
  }
  return result;
}

// Keys and values [1, num_kv_heads, length, dim] of one sequence, and the same rows in a cache.
struct Rows {
  Tensor key, value;
  Rows(const Sizes& s, std::int64_t length, DType dtype, std::uint64_t seed)
      : key(as(dtype, Tensor::normal({1, s.num_kv_heads, length, s.head_dim}, seed))),
        value(as(dtype, Tensor::normal({1, s.num_kv_heads, length, s.value_dim}, seed + 1))) {}
};

inline KvCache cache_of(const Sizes& s, DType dtype, const CacheStore& store) {
  return KvCache({.layers = {{.num_kv_heads = s.num_kv_heads,
                              .head_dim = s.head_dim,
                              .value_dim = s.value_dim,
                              .dtype = dtype,
                              .store = store}}});
}

inline void add(KvCache& cache, Sequence& sequence, const Rows& rows, std::int64_t begin, std::int64_t end) {
  cache.reserve(sequence, end - begin);
  cache.append(0, sequence, rows.key.view().slice(2, begin, end - begin),
               rows.value.view().slice(2, begin, end - begin));
  cache.commit(sequence);
}

inline std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.raw(), x.raw() + x.bytes()};
}
inline double number(const Tensor& x, std::int64_t n) {
  switch (x.dtype()) {
    case DType::bf16:
      return static_cast<float>(x.data<bfloat16>()[n]);
    case DType::f16:
      return static_cast<float>(x.data<float16>()[n]);
    case DType::f64:
      return x.data<double>()[n];
    case DType::f32:
      break;
  }
  return x.data<float>()[n];
}

struct Result {
  Tensor output, log_sum_exp;
};

inline Result run(const AttentionPlan& plan, const AttentionInputs& inputs, Executor* executor = nullptr) {
  const ConstTensorView& q = inputs.query;
  Result result{
      Tensor(plan.dtype(), {q.size(0), q.size(1), q.size(2), plan.shape().value_dim}),
      Tensor(plan.dtype() == DType::f64 ? DType::f64 : DType::f32, {q.size(0), q.size(1), q.size(2)})};
  attend(plan, inputs, {.output = result.output, .log_sum_exp = result.log_sum_exp}, {.executor = executor});
  return result;
}

inline std::vector<std::string> kernels_here() {
  std::vector<std::string> names;
  for (const KernelInfo& kernel : list_kernels()) {
    if (kernel.available && (names.empty() || names.back() != kernel.isa)) names.push_back(kernel.isa);
  }
  return names;
}

struct Mechanism {
  const char* name;
  AttentionSpec spec;
};

inline std::vector<Mechanism> mechanisms() {
  return {{"causal softmax", {.mask = Causal{}}},
          {"ALiBi", {.mods = {AlibiBias{}}, .mask = Causal{}}},
          {"window and first keys", {.mask = (SlidingWindow{50} | GlobalTokens{0, 1, 2}) & Causal{}}},
          {"additive", {.score = Additive{}, .mask = Causal{}}},
          {"bilinear", {.score = Bilinear{}, .mask = Causal{}}},
          {"sigmoid", {.mask = Causal{}, .normalizer = Sigmoid{}}},
          {"sparsemax", {.mask = Causal{}, .normalizer = Sparsemax{}}},
          {"dropout", {.mask = Causal{}, .dropout = {.rate = 0.25}}}};
}

// Arguments of a mechanism, in the type that is computed in.
struct Given {
  std::vector<Tensor> tensors;
  Arguments arguments;
  Given(const AttentionPlan& plan, const Sizes& s) {
    const DType dtype = plan.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const std::int64_t hidden = plan.shape().hidden;
    for (const DeclaredArgument& argument : plan.arguments()) {
      const Shape shape = argument.name == "score.v"           ? Shape{hidden}
                          : argument.name == "score.U"         ? Shape{hidden, s.head_dim}
                          : argument.name == "score.b"         ? Shape{hidden}
                          : argument.name == "mods[0].slope"   ? Shape{1, s.num_query_heads, 1, 1}
                          : argument.name == "normalizer.sink" ? Shape{s.num_query_heads}
                          : std::holds_alternative<Additive>(plan.spec().score)
                              ? Shape{hidden, s.head_dim}
                              : Shape{s.head_dim, s.head_dim};
      tensors.push_back(as(dtype, Tensor::normal(shape, 77 + tensors.size())));
      arguments.set(argument.name, tensors.back());
    }
  }
};

inline AttentionPlan plan_of(const Sizes& s, const AttentionSpec& spec, DType dtype, std::int64_t batch,
                             std::int64_t queries, std::int64_t keys, const std::string& kernel = "") {
  return make_plan(spec,
                   {.batch = batch,
                    .num_query_heads = s.num_query_heads,
                    .num_kv_heads = s.num_kv_heads,
                    .query_len = queries,
                    .key_len = keys,
                    .head_dim = s.head_dim,
                    .value_dim = s.value_dim,
                    .hidden = 8},
                   {.dtype = dtype, .kernel = kernel});
}

inline double tolerance(DType dtype) {
  // Of sums of some hundred products and weights, in another order.
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2;
}

inline void expect_near(const Tensor& a, const Tensor& b, DType dtype, const std::string& what) {
  for (std::int64_t n = 0; n < a.count(); ++n) {
    const double x = number(a, n), y = number(b, n);
    ASSERT_TRUE(x == y || std::abs(x - y) <= tolerance(dtype) * std::max(1.0, std::abs(y)))
        << what << " at " << n << ": " << x << ", gathered " << y;
  }
}

}  // namespace fovea::cached
