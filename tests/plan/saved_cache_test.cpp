// Attention over a sequence that was loaded from a file gives the bits of the sequence that was saved, which
// goes on beside it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "fovea/cache/kv_cache.h"
#include "fovea/plan/plan.h"

namespace fovea {
namespace {

constexpr std::int64_t query_heads = 6, heads = 2, dim = 24, value_dim = 16;

Tensor as(DType dtype, const Tensor& x) {
  Tensor result(dtype, x.shape());
  for (std::int64_t n = 0; n < x.count(); ++n) {
    if (dtype == DType::f32) result.data<float>()[n] = x.data<float>()[n];
    if (dtype == DType::f64) result.data<double>()[n] = static_cast<double>(x.data<float>()[n]);
    if (dtype == DType::bf16) result.data<bfloat16>()[n] = bfloat16(x.data<float>()[n]);
    if (dtype == DType::f16) result.data<float16>()[n] = float16(x.data<float>()[n]);
  }
  return result;
}

void add(KvCache& cache, Sequence& s, std::int64_t rows, std::uint64_t seed) {
  for (std::int64_t n = 0; n < rows; n += 100) {
    const std::int64_t count = std::min<std::int64_t>(100, rows - n);
    const CacheLayer& layer = cache.options().layers[0];
    cache.reserve(s, count);
    const Tensor key = as(layer.dtype, Tensor::normal({1, heads, count, dim}, seed + n)),
                 value = as(layer.dtype, Tensor::normal({1, heads, count, value_dim}, seed + n + 1));
    cache.append(0, s, key, layer.values == CacheValues::own ? ConstTensorView(value) : ConstTensorView());
    cache.commit(s);
  }
}

std::vector<std::byte> attended(const AttentionPlan& plan, const KvCache& cache, const Sequence& s,
                                const Tensor& query) {
  const KeyValueView view = cache.view(0, s);
  Tensor output(plan.dtype(), {1, query_heads, query.shape()[2], value_dim});
  attend(plan, {.query = query, .cache = {&view, 1}}, {.output = output});
  return {output.raw(), output.raw() + output.bytes()};
}

TEST(SavedCache, GivesTheSameBits) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("fovea-saved-cache-" + std::to_string(::getpid()))).string();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const CacheStore& store :
         std::vector<CacheStore>{Paged{16}, Contiguous{}, Ring{.window = 300, .sinks = 3, .slack = 100}}) {
      for (const CacheValues values : {CacheValues::own, CacheValues::first_of_keys}) {
        const KvCacheOptions options{.layers = {{.num_kv_heads = heads,
                                                 .head_dim = dim,
                                                 .value_dim = value_dim,
                                                 .dtype = dtype,
                                                 .values = values,
                                                 .store = store}}};
        const AttentionPlan plan = make_plan({.mask = (SlidingWindow{200} | GlobalTokens{0, 1}) & Causal{}},
                                             {.num_query_heads = query_heads,
                                              .num_kv_heads = heads,
                                              .query_len = 40,
                                              .key_len = 1400,
                                              .head_dim = dim,
                                              .value_dim = value_dim},
                                             {.dtype = dtype});
        KvCache cache(options);
        Sequence s = cache.start();
        add(cache, s, 1233, 1);
        cache.save(s, file);
        for (const CacheMemory memory : {CacheMemory::copied, CacheMemory::mapped}) {
          KvCache other(options);
          Sequence t = other.load(file, {.memory = memory}), fork = cache.fork(s);
          for (const std::int64_t queries : {1, 40}) {
            const Tensor query = as(dtype, Tensor::normal({1, query_heads, queries, dim}, 9));
            ASSERT_EQ(attended(plan, cache, fork, query), attended(plan, other, t, query));
            add(cache, fork, queries, 77);
            add(other, t, queries, 77);
            ASSERT_EQ(attended(plan, cache, fork, query), attended(plan, other, t, query));
          }
        }
      }
    }
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace fovea
