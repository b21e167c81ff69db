// Query offsets by batch entry: each entry equals a call with this offset.
#include <gtest/gtest.h>

#include <cstring>

#include "fovea/attention/expression.h"
#include "fovea/attention/make_mod.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/normalizer_properties.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

// Before the keys, among them, behind them: some queries see nothing, some see everything.
constexpr std::int64_t offsets[] = {-3, 5, 90, 400};
constexpr std::int64_t batch = 4;

// Specs in which the site matters: masks, mods with and without tables by distance, dropout and samples.
std::vector<AttentionSpec> specs() {
  const auto causal_bias = RelativeBias::Direction::causal;
  const Mod at_site = make_mod("at-site", [](auto score, Site at) {
    return score + 0.01f * elementwise::where(at.query % 3 == 1, score, score * 0.5f) -
           0.001f * (at.query - at.key);
  });
  const Mod tilt = make_mod("tilt", [](auto weight, Site at) {
    return elementwise::where((at.query + at.key) % 5 == 1, weight * 0.8f, weight);
  });
  return {{.mask = Causal{}},
          {.mask = Causal{}, .dropout = {0.25}},
          {.mods = {SoftCap{3}, AlibiBias{}}, .mask = KeyLengths{} & SlidingWindow{20, 9}},
          {.mods = {RelativeBias{8, 20, causal_bias}}, .mask = Causal{} & Chunked{64}, .dropout = {0.25}},
          {.mods = {RelativeKeyBias{5}, at_site}, .mask = Strided{3} | GlobalTokens{2, 7}},
          {.score = Additive{}, .mods = {at_site}, .mask = Causal{}},
          {.mask = ~Mask(SlidingWindow{4, 4}), .normalizer = Sigmoid{}},
          {.mods = {RelativeBias{6, 12}}, .mask = Causal{}, .normalizer = Sparsemax{}},
          {.mask = Causal{}, .normalizer = GumbelSample{0.8}, .weight_mods = {tilt}, .dropout = {0.25}},
          {.mask = Causal{} & KeyLengths{}, .normalizer = HardSample{}}};
}

Case case_of(const AttentionSpec& spec, std::int64_t queries, std::int64_t keys, DType dtype) {
  Case c;
  c.spec = spec;
  c.dtype = dtype;
  c.shape = {.batch = batch,
             .num_query_heads = 4,
             .num_kv_heads = 2,
             .query_len = queries,
             .key_len = keys,
             .head_dim = 8,
             .value_dim = 12};
  if (definition(spec.score).has_hidden()) c.shape.hidden = 5;
  c.key_lengths = {keys, keys / 2, keys - 1, 3};
  for (const DeclaredArgument& argument : declared_arguments(spec)) {
    if (!argument.name.starts_with("mods[")) continue;
    const auto of = static_cast<std::size_t>(argument.name[5] - '0');
    const std::int64_t entries = spec.mods[of].node().entries();
    const bool by_query = spec.mods[of].node().table_by_query();
    c.mod_arguments.push_back({1, 4, by_query ? queries : 1, entries > 0 ? entries : 1});
  }
  for (const Mod& mod : spec.mods) c.name += to_string(mod) + " ";
  c.name += to_string(spec.mask) + " " + to_string(spec.normalizer) +
            (spec.dropout.rate > 0 ? " dropout " : " ") + std::string(to_string(dtype)) + " " +
            std::to_string(queries) + "x" + std::to_string(keys);
  return c;
}

// A forced kernel that cannot give such an output refuses.
bool accepted(const Case& c, const std::string& kernel) {
  try {
    make_plan(c.spec, c.shape, {.dtype = c.dtype, .precision = Precision::higher, .kernel = kernel});
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

// Compares the elements that belong to batch entry b.
bool same_entry(const Tensor& got, const Tensor& want, std::int64_t b) {
  const std::size_t bytes = want.bytes() / static_cast<std::size_t>(batch),
                    at = bytes * static_cast<std::size_t>(b);
  return std::memcmp(got.raw() + at, want.raw() + at, bytes) == 0;
}

// The same bits, forward and backward, in every algorithm that takes the spec. Gradients that entries share
// are compared with the reference, which sums in double.
TEST(QueryOffsets, AnEntryEqualsACallWithItsOffset) {
  for (const KernelInfo& info : list_kernels()) {
    if (!info.available) continue;
    for (const AttentionSpec& spec : specs()) {
      for (const auto& [queries, keys] : {std::pair{1, 40}, {7, 140}, {60, 140}}) {
        if (info.isa == "reference" && queries * keys > 2000) continue;
        for (const DType dtype : {DType::f32, DType::bf16}) {
          // Kernels that read 16-bit operands without widening take neither mods nor whole rows; the others
          // see f32.
          if (dtype == DType::bf16 && (!spec.mods.empty() || is_whole_row(spec.normalizer))) continue;
          Case mixed = case_of(spec, queries, keys, dtype);
          mixed.query_offsets.assign(std::begin(offsets), std::end(offsets));
          SCOPED_TRACE(info.name + ": " + mixed.name);
          const Operands o(mixed, dtype);
          if (!accepted(mixed, info.name)) continue;
          const Results got = run_case(mixed, o, dtype, info.name);
          for (std::int64_t b = 0; b < batch; ++b) {
            Case uniform = case_of(spec, queries, keys, dtype);
            uniform.query_offset = offsets[b];
            const Results want = run_case(uniform, o, dtype, info.name);
            ASSERT_TRUE(same_entry(got.output, want.output, b)) << "output " << b;
            ASSERT_TRUE(same_entry(got.log_sum_exp, want.log_sum_exp, b)) << "log_sum_exp " << b;
            ASSERT_TRUE(same_entry(got.weights, want.weights, b)) << "weights " << b;
            ASSERT_TRUE(same_entry(got.d_query, want.d_query, b)) << "d_query " << b;
            ASSERT_TRUE(same_entry(got.d_key, want.d_key, b)) << "d_key " << b;
            ASSERT_TRUE(same_entry(got.d_value, want.d_value, b)) << "d_value " << b;
          }
        }
      }
    }
  }
}

// Cache entries with different numbers of keys, one new query each. Elements behind an entry's keys are NaN.
// Every result equals that of the entry's sequence alone with the default offset.
TEST(QueryOffsets, EntriesOfDifferentLengthsDecodeTogether) {
  constexpr std::int64_t heads = 4, kv_heads = 2, dim = 16;
  const std::vector<std::int64_t> lengths{1, 700, 33, 1024, 256};
  const auto entries = static_cast<std::int64_t>(lengths.size());
  const std::int64_t capacity = 1100;
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const std::int64_t queries : {1, 3}) {
      for (const AttentionSpec& spec :
           {AttentionSpec{.mask = Causal{}},
            {.mods = {SoftCap{2}}, .mask = Causal{} & SlidingWindow{.lookback = 99}}}) {
        SCOPED_TRACE(info.isa + " " + to_string(spec.mask) + " " + std::to_string(queries));
        const Tensor query = random_tensor(DType::f32, {entries, heads, queries, dim}, 1),
                     key = random_tensor(DType::f32, {entries, kv_heads, capacity, dim}, 2),
                     value = random_tensor(DType::f32, {entries, kv_heads, capacity, dim}, 3),
                     d_output = random_tensor(DType::f32, query.shape(), 4);
        std::vector<std::int64_t> at;
        for (const std::int64_t length : lengths) at.push_back(length - queries);
        for (std::int64_t b = 0; b < entries; ++b) {
          for (const Tensor& t : {key, value}) {
            for (std::int64_t i = 0; i < kv_heads * capacity; ++i) {
              for (std::int64_t d = 0; d < dim && i % capacity >= lengths[static_cast<std::size_t>(b)]; ++d)
                set_element(t, (b * kv_heads * capacity + i) * dim + d, NAN);
            }
          }
        }
        const AttentionShape shape{.batch = entries,
                                   .num_query_heads = heads,
                                   .num_kv_heads = kv_heads,
                                   .query_len = queries,
                                   .key_len = capacity,
                                   .head_dim = dim,
                                   .value_dim = dim};
        const AttentionPlan plan = make_plan(spec, shape, {.kernel = info.isa});
        const Tensor output = unwritten_like(query), sums = unwritten(DType::f32, {entries, heads, queries}),
                     d_query = unwritten_like(query), d_key = unwritten_like(key),
                     d_value = unwritten_like(value);
        const AttentionInputs in{.query = query, .key = key, .value = value, .query_offsets = at};
        attend(plan, in, {.output = output, .log_sum_exp = sums});
        attend_backward(plan, in, output, sums, d_output, {d_query, d_key, d_value});
        for (std::int64_t b = 0; b < entries; ++b) {
          const std::int64_t length = lengths[static_cast<std::size_t>(b)];
          const auto entry = [&](const Tensor& t, std::int64_t rows) {
            const ConstTensorView whole = t;
            const std::int64_t strides[] = {whole.stride(0), whole.stride(1), whole.stride(2), 1};
            return TensorView(t.raw() + b * whole.stride(0) * static_cast<std::int64_t>(sizeof(float)),
                              DType::f32, {1, t.size(1), rows, dim}, strides);
          };
          const Tensor alone = unwritten(DType::f32, {1, heads, queries, dim}),
                       alone_sums = unwritten(DType::f32, {1, heads, queries}),
                       by_query = unwritten_like(alone),
                       by_key = unwritten(DType::f32, {1, kv_heads, length, dim}),
                       by_value = unwritten_like(by_key);
          const AttentionInputs own{
              .query = entry(query, queries), .key = entry(key, length), .value = entry(value, length)};
          attend(plan, own, {.output = alone, .log_sum_exp = alone_sums});
          attend_backward(plan, own, alone, alone_sums, entry(d_output, queries),
                          {by_query, by_key, by_value});
          // Keys are split into chunks by the shape of a call. So sums of up to 1024 terms of order 1 have
          // another order.
          const double tolerance = 16 * 0x1p-23 * static_cast<double>(length + 2 * dim);
          const auto part = [&](const Tensor& t, std::int64_t rows) {
            Tensor copy(DType::f32, {1, t.size(1), rows, dim});
            for (std::int64_t h = 0; h < t.size(1); ++h) {
              for (std::int64_t i = 0; i < rows * dim; ++i)
                set_element(copy, h * rows * dim + i, element(t, (b * t.size(1) + h) * t.size(2) * dim + i));
            }
            return copy;
          };
          expect_near(part(output, queries), alone, tolerance, "output " + std::to_string(b));
          expect_near(part(d_query, queries), by_query, tolerance, "d_query " + std::to_string(b));
          expect_near(part(d_key, length), by_key, tolerance, "d_key " + std::to_string(b));
          expect_near(part(d_value, length), by_value, tolerance, "d_value " + std::to_string(b));
          for (std::int64_t i = 0; i < kv_heads * capacity; ++i) {
            for (std::int64_t d = 0; d < dim && i % capacity >= length; ++d)
              ASSERT_EQ(element(d_key, (b * kv_heads * capacity + i) * dim + d), 0.0) << b;
          }
        }
      }
    }
  }
}

TEST(QueryOffsets, AreRefusedByName) {
  const AttentionShape shape{.batch = 2, .query_len = 2, .key_len = 4, .head_dim = 4, .value_dim = 4};
  const Tensor q = random_tensor(DType::f32, {2, 1, 2, 4}, 1), k = random_tensor(DType::f32, {2, 1, 4, 4}, 2),
               out(DType::f32, {2, 1, 2, 4}), sums(DType::f32, {2, 1, 2});
  const auto refused = [&](const AttentionSpec& spec, std::optional<std::int64_t> one,
                           std::vector<std::int64_t> list) {
    const AttentionPlan plan = make_plan(spec, shape);
    const AttentionInputs in{.query = q, .key = k, .value = k, .query_offset = one, .query_offsets = list};
    expect_refused([&] { attend(plan, in, {.output = out}); }, "attend", "query_offsets");
    expect_refused([&] { attend_backward(plan, in, out, sums, out, {.value = Tensor(k.clone())}); },
                   "attend_backward", "query_offsets");
  };
  refused({}, {}, {1});                               // one offset for two entries
  refused({}, {}, {1, 2, 3});                         // three
  refused({}, 0, {1, 2});                             // together with query_offset
  refused({}, {}, {1, (std::int64_t{1} << 30) + 1});  // a Site has 32 bits
  refused({}, {}, {-(std::int64_t{1} << 30) - 1, 0});
}

}  // namespace
}  // namespace fovea::testing
