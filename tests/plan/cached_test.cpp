// Calls whose keys and values are in a cache (AttentionInputs::cache): the numbers of the same rows gathered,
// and the same bits whatever the store, the size of pages, the other entries and the number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "fovea/cache/kv_cache.h"
#include "fovea/plan/plan.h"

namespace fovea {
namespace {

struct Sizes {
  std::int64_t num_query_heads = 4, num_kv_heads = 2, head_dim = 20, value_dim = 12;
};

Tensor as(DType dtype, const Tensor& x) {
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

KvCache cache_of(const Sizes& s, DType dtype, const CacheStore& store) {
  return KvCache({.layers = {{.num_kv_heads = s.num_kv_heads,
                              .head_dim = s.head_dim,
                              .value_dim = s.value_dim,
                              .dtype = dtype,
                              .store = store}}});
}

void add(KvCache& cache, Sequence& sequence, const Rows& rows, std::int64_t begin, std::int64_t end) {
  cache.reserve(sequence, end - begin);
  cache.append(0, sequence, rows.key.view().slice(2, begin, end - begin),
               rows.value.view().slice(2, begin, end - begin));
  cache.commit(sequence);
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.raw(), x.raw() + x.bytes()};
}
double number(const Tensor& x, std::int64_t n) {
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

Result run(const AttentionPlan& plan, const AttentionInputs& inputs, Executor* executor = nullptr) {
  const ConstTensorView& q = inputs.query;
  Result result{
      Tensor(plan.dtype(), {q.size(0), q.size(1), q.size(2), plan.shape().value_dim}),
      Tensor(plan.dtype() == DType::f64 ? DType::f64 : DType::f32, {q.size(0), q.size(1), q.size(2)})};
  attend(plan, inputs, {.output = result.output, .log_sum_exp = result.log_sum_exp}, {.executor = executor});
  return result;
}

std::vector<std::string> kernels_here() {
  std::vector<std::string> names;
  for (const KernelInfo& kernel : list_kernels()) {
    if (kernel.available && (names.empty() || names.back() != kernel.isa)) names.push_back(kernel.isa);
  }
  return names;
}

struct Mechanism {
  const char* name;
  AttentionSpec spec;
  bool values = true;
};

std::vector<Mechanism> mechanisms() {
  return {{"causal softmax", {.mask = Causal{}}},
          {"ALiBi", {.mods = {Alibi{}}, .mask = Causal{}}},
          {"window and first keys", {.mask = (SlidingWindow{50, 0} | FirstKeys{3}) & Causal{}}},
          {"additive", {.score = Additive{}, .mask = Causal{}}},
          {"bilinear", {.score = Bilinear{}, .mask = Causal{}}},
          {"sigmoid", {.mask = Causal{}, .normalizer = Sigmoid{}}},
          {"sparsemax", {.mask = Causal{}, .normalizer = Sparsemax{}}},
          {"dropout", {.mask = Causal{}, .dropout = {.rate = 0.25}}}};
}

}  // namespace
}  // namespace fovea
