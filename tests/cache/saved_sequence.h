// What the tests of saved sequences share: caches of every kind of store, rows for them, and how they are
// compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "files/scratch.h"
#include "fovea/cache/kv_cache.h"

namespace fovea::testing {

class CacheFile : public files::ScratchFolder {
 protected:
  std::string file() const { return path("sequence"); }
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // ext4 flushes a file that is truncated and written again
  std::ofstream(path, std::ios::binary) << bytes;
}

inline Tensor in(DType dtype, const Tensor& x) {
  if (dtype != DType::f64) return x;  // append rounds f32 to 16 bits
  Tensor wide(dtype, x.shape());
  for (std::int64_t n = 0; n < x.count(); ++n)
    wide.data<double>()[n] = static_cast<double>(x.data<float>()[n]) / 3;
  return wide;
}

// Rows of a sequence by their seed and position, with ids if `with_ids`.
inline void add(KvCache& cache, Sequence& s, std::int64_t rows, std::uint64_t seed, bool with_ids = true) {
  while (rows > 0) {
    const std::int64_t some = std::min<std::int64_t>(rows, 5);  // the slack of the rings
    const std::int64_t length = cache.length(s);
    cache.reserve(s, some);
    for (std::int64_t l = 0; l < cache.layer_count(); ++l) {
      const CacheLayer& spec = cache.options().layers[static_cast<std::size_t>(l)];
      const auto rows_seed = seed * 1000003 + static_cast<std::uint64_t>(length * 100 + l);
      const Tensor key =
          in(spec.dtype, Tensor::normal({1, spec.num_kv_heads, some, spec.head_dim}, rows_seed));
      const Tensor value = in(
          spec.dtype, Tensor::normal({1, spec.num_kv_heads, some, std::max<std::int64_t>(spec.value_dim, 1)},
                                     rows_seed + 50));
      cache.append(l, s, key, spec.values == CacheValues::own ? ConstTensorView(value) : ConstTensorView());
    }
    std::vector<std::int32_t> ids;
    for (std::int64_t n = 0; with_ids && n < some; ++n) ids.push_back(static_cast<std::int32_t>(length + n));
    cache.commit(s, ids);
    rows -= some;
  }
}

// By position: keys and values of all heads.
inline std::map<std::int64_t, std::string> rows_of(const KeyValueView& view) {
  std::map<std::int64_t, std::string> found;
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  for (const KeyValueRun& run : view.runs) {
    for (std::int64_t r = 0; r < run.count; ++r) {
      std::string& row = found[run.position + r];
      for (std::int64_t h = 0; h < view.num_kv_heads; ++h) {
        const auto at = [&](const std::byte* first, std::int64_t row_stride, std::int64_t head_stride) {
          return reinterpret_cast<const char*>(first + (r * row_stride + h * head_stride) * element);
        };
        row.append(at(run.key, view.key_row_stride, run.key_head_stride),
                   static_cast<std::size_t>(view.head_dim * element));
        if (view.value_dim > 0)
          row.append(at(run.value, view.value_row_stride, run.value_head_stride),
                     static_cast<std::size_t>(view.value_dim * element));
      }
    }
  }
  return found;
}

inline void expect_same(const KvCache& a, const Sequence& s, const KvCache& b, const Sequence& t) {
  ASSERT_EQ(a.length(s), b.length(t));
  ASSERT_EQ(a.ids(s), b.ids(t));
  for (std::int64_t l = 0; l < a.layer_count(); ++l)
    ASSERT_EQ(rows_of(a.view(l, s)), rows_of(b.view(l, t))) << "layer " << l;
}

inline std::vector<KvCacheOptions> every_store() {
  std::vector<KvCacheOptions> options;
  const Ring ring{.window = 9, .sinks = 2, .slack = 5};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const CacheStore& store : std::vector<CacheStore>{Paged{4}, Contiguous{.capacity = 3}, ring}) {
      CacheLayer plain{.num_kv_heads = 2, .head_dim = 6, .value_dim = 4, .dtype = dtype, .store = store};
      CacheLayer latent = plain, keys = plain;
      latent.values = CacheValues::first_of_keys;
      keys.values = CacheValues::none;
      keys.value_dim = -1;
      options.push_back({.layers = {plain, latent, keys}});
    }
  }
  const CacheLayer one{.num_kv_heads = 1, .head_dim = 3};
  options.push_back({.layers = {one, one, one, one}});
  options.back().layers[1].store = ring;
  options.back().layers[2].store = Ring{.window = 7, .sinks = 0, .slack = 8};
  options.back().layers[3].store = Contiguous{};
  return options;
}

}  // namespace fovea::testing
