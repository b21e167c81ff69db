#include "bench/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "fovea/attention/expression.h"
#include "fovea/attention/mask_definition.h"

namespace fovea::bench {
namespace {

constexpr DType all_dtypes[] = {DType::f32, DType::bf16, DType::f16};
// Four documents of uneven lengths, whose borders do not coincide with those of tiles.
constexpr const char* four_documents = "documents(0,3001,5003,11007,16384)";

std::int64_t multiple(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of * of;
}

// Rounds queries and head_dim up to what AMX takes at a time: 16 rows, and 32 elements of 16 bits.
BenchShape next_tile(BenchShape shape) {
  shape.query_len = multiple(shape.query_len, 16);
  shape.head_dim = multiple(shape.head_dim, 32);
  return shape;
}

void add(std::vector<BenchCase>& cases, BenchCase c) {
  if (c.mask != "everything") {
    const std::int64_t pairs = visible_pairs(parse_mask(c.mask), c.shape.query_len, c.shape.key_len);
    c.beside = c.shape;
    c.beside.key_len = std::max<std::int64_t>(1, pairs / c.shape.query_len);
    c.beside_name = "dense";
  } else if (c.group == "odd" && to_string(next_tile(c.shape)) != to_string(c.shape)) {
    c.beside = next_tile(c.shape);
    c.beside_name = "tile";
  }
  if (c.precision != Precision::full) {
    c.beside = c.shape;
    c.beside_name = "full";
  }
  cases.push_back(std::move(c));
}

struct Shapes {
  std::vector<BenchShape> prefill, decode, additive, odd, sentences;
  BenchShape window, small;
  const char* documents;
  const char* window_mask;
};

Shapes all_shapes() {
  Shapes s{.prefill = {{1, 16, 16, 1024, 1024, 64},
                       {1, 16, 16, 4096, 4096, 64},
                       {1, 16, 16, 16384, 16384, 64},
                       {1, 32, 8, 2048, 2048, 128},
                       {8, 12, 12, 512, 512, 64}},
           .decode = {{1, 32, 8, 1, 4096, 128}, {16, 32, 8, 1, 2048, 128}, {1, 32, 8, 1, 32768, 128}},
           .additive = {{8, 1, 1, 64, 64, 256}, {1, 1, 1, 2048, 2048, 256}},
           .odd = {},
           .sentences = {{64, 4, 4, 14, 14, 64}, {64, 4, 4, 32, 32, 64}},
           .window = {1, 16, 16, 16384, 16384, 64},
           .small = {1, 1, 1, 1, 16, 64},
           .documents = four_documents,
           .window_mask = "window(255,0)"};
  for (const std::int64_t queries : {8, 12, 16, 24, 33, 48}) s.odd.push_back({1, 16, 16, queries, 4096, 64});
  for (const std::int64_t dim : {40, 72, 80, 96, 112, 192, 256})
    s.odd.push_back({1, 16, 16, 1024, 1024, dim});
  return s;
}

Shapes quick_shapes() {
  return {.prefill = {{1, 2, 2, 96, 96, 64}, {1, 4, 2, 64, 64, 128}},
          .decode = {{1, 8, 2, 1, 256, 128}},
          .additive = {{2, 1, 1, 16, 16, 64}},
          .odd = {{1, 2, 2, 9, 128, 64}, {1, 2, 2, 64, 64, 40}},
          .sentences = {{4, 2, 2, 14, 14, 64}},
          .window = {1, 2, 2, 256, 256, 64},
          .small = {1, 1, 1, 1, 16, 64},
          .documents = "documents(0,50,101,256)",
          .window_mask = "window(31,0)"};
}

}  // namespace

std::vector<BenchCase> bench_cases(CaseSet set) {
  const Shapes s = set == CaseSet::quick ? quick_shapes() : all_shapes();
  std::vector<BenchCase> cases;
  for (const DType dtype : all_dtypes) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const BenchShape& shape : s.prefill) {
        for (const char* mask : {"causal", "everything"})
          add(cases, {.group = pass == Pass::forward ? "prefill" : "backward",
                      .shape = shape,
                      .mask = mask,
                      .dtype = dtype,
                      .pass = pass});
      }
    }
    for (const Precision precision : {Precision::high, Precision::higher}) {
      for (const BenchShape& shape : s.prefill) {
        for (const char* mask : {"causal", "everything"}) {
          if (dtype != DType::f32) continue;
          add(cases, {.group = std::string(to_string(precision)),
                      .shape = shape,
                      .mask = mask,
                      .precision = precision});
        }
      }
    }
    add(cases, {.group = "window", .shape = s.window, .mask = s.window_mask, .dtype = dtype});
    add(cases, {.group = "documents", .shape = s.window, .mask = s.documents, .dtype = dtype});
    for (const BenchShape& shape : s.decode) add(cases, {.group = "decode", .shape = shape, .dtype = dtype});
    add(cases, {.group = "small", .shape = s.small, .dtype = dtype});
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (dtype == DType::f16) continue;
      for (const BenchShape& shape : s.additive)
        add(cases, {.group = "additive", .shape = shape, .score = "additive", .dtype = dtype, .pass = pass});
    }
    if (dtype == DType::f16) continue;
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const BenchShape& shape : s.sentences)
        add(cases, {.group = "sentences", .shape = shape, .dtype = dtype, .pass = pass});
    }
    for (const BenchShape& shape : s.odd) add(cases, {.group = "odd", .shape = shape, .dtype = dtype});
  }
  return cases;
}

std::string BenchCase::name() const {
  return fmt::format("{} {} {} {} {}", group, to_string(dtype), bench::to_string(pass),
                     bench::to_string(shape), mask);
}

AttentionSpec spec_of(const BenchCase& c) {
  AttentionSpec spec{.mask = parse_mask(c.mask)};
  if (c.score == "additive") spec.score = Additive{};
  return spec;
}

AttentionShape shape_of(const BenchShape& s) {
  return {.batch = s.batch,
          .num_query_heads = s.query_heads,
          .num_kv_heads = s.kv_heads,
          .query_len = s.query_len,
          .key_len = s.key_len,
          .head_dim = s.head_dim,
          .value_dim = s.head_dim,
          .hidden = s.head_dim};
}

std::string to_string(const BenchShape& s) {
  return fmt::format("{},{},{},{},{},{}", s.batch, s.query_heads, s.kv_heads, s.query_len, s.key_len,
                     s.head_dim);
}

const char* to_string(Pass pass) noexcept {
  return pass == Pass::forward ? "forward" : "backward";
}

std::int64_t visible_pairs(const Mask& mask, std::int64_t query_len, std::int64_t key_len) {
  std::int64_t pairs = 0;
  const std::int64_t offset = key_len - query_len;
  for (std::int64_t row = offset; row < offset + query_len; ++row) {
    for (const KeySpan& span :
         mask.node().spans({.query_begin = row, .query_end = row + 1, .key_len = key_len}).some)
      pairs += span.end - span.begin;
  }
  return pairs;
}

Work work_of(const BenchCase& c) {
  const BenchShape& s = c.shape;
  const auto dim = static_cast<double>(s.head_dim);
  const double heads = static_cast<double>(s.batch * s.query_heads);
  Work work{.pairs = heads * static_cast<double>(visible_pairs(parse_mask(c.mask), s.query_len, s.key_len))};
  const bool backward = c.pass == Pass::backward, additive = c.score == "additive";
  // Forward has QKᵀ and PV; backward has QKᵀ again, dP, dV, dQ, dK. With an additive score only the products
  // with values are left.
  work.flops = work.pairs * 2 * dim * (additive ? (backward ? 2 : 1) : (backward ? 5 : 2));
  work.exponentials = work.pairs;
  work.tanhs = additive ? work.pairs * dim : 0;
  const double queries = heads * static_cast<double>(s.query_len) * dim,
               keys = static_cast<double>(s.batch * s.kv_heads * s.key_len) * dim;
  // Forward reads q, k, v and writes the output; backward reads these and dO, and writes dQ, dK, dV.
  work.bytes =
      static_cast<double>(size_of(c.dtype)) * (backward ? 4 * queries + 4 * keys : 2 * queries + 2 * keys);
  return work;
}

std::vector<Engine> product_engines(const BenchCase& c) {
  if (c.dtype == DType::bf16) return {{Probe::fma_f32}, {Probe::dot_bf16}, {Probe::amx_bf16}};
  if (c.dtype == DType::f16 || c.precision == Precision::high)
    return {{Probe::fma_f32}, {Probe::amx_bf16, 3}};
  if (c.precision == Precision::higher) return {{Probe::fma_f32}, {Probe::amx_bf16, 6}};
  return {{Probe::fma_f32}};
}

std::vector<Probe> exponential_probes(DType dtype) {
  if (dtype == DType::f32) return {Probe::exponential};
  return {Probe::exponential, Probe::exponential_16};
}

std::vector<Probe> probes_of(const BenchCase& c) {
  std::vector<Probe> probes;
  for (const Engine& engine : product_engines(c)) probes.push_back(engine.probe);
  if (c.score == "additive") {
    probes.push_back(Probe::tanh);
  } else {
    for (const Probe probe : exponential_probes(c.dtype)) probes.push_back(probe);
  }
  probes.push_back(Probe::read);
  std::erase_if(probes, [](Probe probe) { return !absence_of(probe).empty(); });
  return probes;
}

double Limit::seconds() const {
  return std::max({product, exponential, bytes});
}

const char* Limit::bound() const {
  if (product >= std::max(exponential, bytes)) return "product";
  return bytes > exponential ? "bytes" : tanh ? "tanh" : "exponential";
}

Limit limit_of(const BenchCase& c, const Work& work, const Rates& rates) {
  const auto best = [&rates](const std::vector<Probe>& probes) {
    double rate = 0;
    for (const Probe probe : probes) rate = std::max(rate, rates[probe]);
    return rate;
  };
  double products = 0;
  for (const Engine& engine : product_engines(c))
    products = std::max(products, rates[engine.probe] / engine.products);
  Limit limit{.product = work.flops / products, .bytes = work.bytes / rates[Probe::read]};
  limit.tanh = c.score == "additive";
  limit.exponential =
      limit.tanh ? work.tanhs / rates[Probe::tanh] : work.exponentials / best(exponential_probes(c.dtype));
  return limit;
}

}  // namespace fovea::bench
