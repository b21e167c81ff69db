// Few queries over many keys: keys are split by the shape, 16-bit keys are read without widening, chunks are
// merged.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fovea/attention/masks.h"
#include "fovea/core/executor.h"
#include "plan/case_table.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

struct Call {
  AttentionShape shape;
  DType dtype = DType::f32;
  AttentionSpec spec = {};
};

// Counts of queries and keys below and above every limit: where kernels change algorithm, the keys of a
// chunk, and whole vectors. A scale of 3 makes maxima rise from chunk to chunk. Of FOVEA_CASES=tenth every
// tenth call.
std::vector<Call> calls(const std::vector<std::int64_t>& queries_of_call,
                        const std::vector<std::int64_t>& keys_of_call) {
  std::vector<Call> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const std::int64_t queries : queries_of_call) {
      for (const std::int64_t keys : keys_of_call) {
        const AttentionShape shape{.batch = 2,
                                   .num_query_heads = 6,
                                   .num_kv_heads = queries % 2 == 0 ? 6 : 2,
                                   .query_len = queries,
                                   .key_len = keys,
                                   .head_dim = queries < 5    ? 20
                                               : queries < 10 ? 96
                                               : queries < 15 ? 160
                                                              : 40,
                                   .value_dim = queries < 5 ? 12 : 72};
        list.push_back({shape, dtype, {.scale = 3.0, .mask = Causal{}}});
        list.push_back(
            {shape, dtype, {.mods = {SoftCap{2.0}}, .mask = Causal{} & SlidingWindow{.lookback = 300}}});
        list.push_back({shape, dtype, {.normalizer = Sigmoid{}}});
      }
    }
  }
  if (cases_wanted("tenth")) {
    std::size_t n = 0;
    std::erase_if(list, [&](const Call&) { return n++ % 10 != 0; });
  }
  return list;
}

struct Made {
  Tensor query, key, value, output, log_sum_exp, weights;
};

Made made(const Call& c) {
  const AttentionShape& s = c.shape;
  const DType wide = c.dtype == DType::f64 ? DType::f64 : DType::f32;
  return {random_tensor(c.dtype, {s.batch, s.num_query_heads, s.query_len, s.head_dim}, 1),
          random_tensor(c.dtype, {s.batch, s.num_kv_heads, s.key_len, s.head_dim}, 2),
          random_tensor(c.dtype, {s.batch, s.num_kv_heads, s.key_len, s.value_dim}, 3),
          Tensor(c.dtype, {s.batch, s.num_query_heads, s.query_len, s.value_dim}),
          Tensor(wide, {s.batch, s.num_query_heads, s.query_len}),
          Tensor(wide, {s.batch, s.num_query_heads, s.query_len, s.key_len})};
}

// The same operands, and outputs of their own.
Made with_new_outputs(const Made& m) {
  return {m.query,
          m.key,
          m.value,
          Tensor(m.output.dtype(), m.output.shape()),
          Tensor(m.log_sum_exp.dtype(), m.log_sum_exp.shape()),
          Tensor(m.weights.dtype(), m.weights.shape())};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// The same bits for 1, 2 and 5 threads, and with or without weights.
TEST(Decoding, NeitherThreadsNorWeightsChangeABit) {
  for (const Call& c : calls({1, 3, 9, 14, 50}, {256, 257, 1500})) {
    const Made operands = made(c);
    const AttentionInputs in{.query = operands.query, .key = operands.key, .value = operands.value};
    for (const KernelInfo& info : instruction_sets()) {
      if (!info.available || info.isa == "reference") continue;
      const AttentionPlan plan = make_plan(c.spec, c.shape, {.dtype = c.dtype, .kernel = info.isa});
      const Made one = with_new_outputs(operands);
      const auto single = make_thread_pool(1);
      attend(plan, in, {.output = one.output, .log_sum_exp = one.log_sum_exp}, {single.get(), {}});
      for (const int threads : {1, 2, 5}) {
        const auto pool = make_thread_pool(threads);
        const Made other = with_new_outputs(operands);
        AttentionOutputs out{.output = other.output, .log_sum_exp = other.log_sum_exp};
        if (threads != 2) out.weights = other.weights;
        attend(plan, in, out, {pool.get(), {}});
        const std::string name = info.isa + " " + std::string(to_string(c.dtype)) + " " +
                                 std::to_string(c.shape.query_len) + "x" + std::to_string(c.shape.key_len) +
                                 " " + to_string(c.spec.mask) + ", " + std::to_string(threads) + " threads";
        ASSERT_TRUE(same(one.output, other.output)) << name;
        ASSERT_TRUE(same(one.log_sum_exp, other.log_sum_exp)) << name;
      }
    }
  }
}

// Up to eight rows that share a key take several tiles at a time, and windows begin inside a tile.
TEST(Decoding, FewRowsHaveTheSameBitsWithWeights) {
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available || info.isa == "reference") continue;
    for (std::int64_t lookback = 150, rows = 1; lookback < 1500; lookback += 53, rows = rows % 9 + 1) {
      const AttentionShape shape{.batch = 1,
                                 .num_query_heads = 2 * rows,
                                 .num_kv_heads = 2,
                                 .query_len = 1,
                                 .key_len = 1500,
                                 .head_dim = 64,
                                 .value_dim = 64};
      const Call c{
          shape, DType::bf16, {.scale = 3.0, .mask = Causal{} & SlidingWindow{.lookback = lookback}}};
      const AttentionPlan plan = make_plan(c.spec, c.shape, {.dtype = c.dtype, .kernel = info.isa});
      const Made plain = made(c), weighted = with_new_outputs(plain);
      attend(plan, {.query = plain.query, .key = plain.key, .value = plain.value}, {.output = plain.output});
      attend(plan, {.query = weighted.query, .key = weighted.key, .value = weighted.value},
             {.output = weighted.output, .weights = weighted.weights});
      ASSERT_TRUE(same(plain.output, weighted.output))
          << info.isa << ", " << rows << " rows, a window of " << lookback;
    }
  }
}

// Rows that share a head of keys go in groups of up to four, and each group has loops of its own.
TEST(Decoding, ARowHasTheBitsThatItHasAlone) {
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available || info.isa == "reference") continue;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (const std::int64_t dim : {20, 64, 72, 128, 200}) {
        const AttentionShape alone{.query_len = 1, .key_len = 611, .head_dim = dim, .value_dim = dim};
        const AttentionPlan single = make_plan({.scale = 3.0}, alone, {.dtype = dtype, .kernel = info.isa});
        for (std::int64_t rows = 2; rows <= 9; ++rows) {
          AttentionShape shape = alone;
          shape.num_query_heads = rows;
          const Made m = made({shape, dtype});
          attend(make_plan({.scale = 3.0}, shape, {.dtype = dtype, .kernel = info.isa}),
                 {.query = m.query, .key = m.key, .value = m.value}, {.output = m.output});
          for (std::int64_t h = 0; h < rows; ++h) {
            Tensor output(dtype, {1, 1, 1, dim});
            attend(single, {.query = m.query.view().slice(1, h, 1), .key = m.key, .value = m.value},
                   {.output = output});
            const auto* of_row =
                static_cast<const std::byte*>(m.output.raw()) + static_cast<std::size_t>(h) * output.bytes();
            ASSERT_EQ(std::memcmp(output.raw(), of_row, output.bytes()), 0)
                << info.isa << " " << to_string(dtype) << " " << dim << " wide, row " << h << " of " << rows;
          }
        }
      }
    }
  }
}

// In the relative Frobenius norm. 16-bit results lose at most 2^-9 (f16: 2^-12) by rounding the output,
// spread evenly, and bf16 as much again by rounding the weights. f32 and f64 lose some roundings of sums of
// some hundred terms.
double bound_of(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-8 * std::sqrt(2.0 / 3.0);
  if (dtype == DType::f16) return 0x1p-11;
  return 64 * (dtype == DType::f64 ? 0x1p-52 : 0x1p-23);
}

TEST(Decoding, AnyCountOfQueriesAgreesWithTheReference) {
  for (const Call& c : calls({1, 4, 8, 13, 16, 17, 33}, {257, 700})) {
    const Made m = made(c);
    Made exact = made(c);
    for (Tensor* t : {&exact.query, &exact.key, &exact.value, &exact.output}) *t = in_double(*t);
    exact.log_sum_exp = Tensor(DType::f64, exact.log_sum_exp.shape());
    attend(make_plan(c.spec, c.shape, {.dtype = DType::f64, .kernel = "reference"}),
           {.query = exact.query, .key = exact.key, .value = exact.value},
           {.output = exact.output, .log_sum_exp = exact.log_sum_exp});
    for (const KernelInfo& info : instruction_sets()) {
      if (!info.available || info.isa == "reference") continue;
      attend(make_plan(c.spec, c.shape, {.dtype = c.dtype, .kernel = info.isa}),
             {.query = m.query, .key = m.key, .value = m.value},
             {.output = m.output, .log_sum_exp = m.log_sum_exp});
      const std::string name = info.isa + " " + std::string(to_string(c.dtype)) + " " +
                               std::to_string(c.shape.query_len) + "x" + std::to_string(c.shape.key_len) +
                               " " + to_string(c.spec.mask);
      EXPECT_LT(relative_distance(m.output, exact.output), bound_of(c.dtype)) << name;
      if (c.spec.normalizer == Normalizer(Softmax{}))
        EXPECT_LT(relative_distance(m.log_sum_exp, exact.log_sum_exp), 0x1p-18) << name;
    }
  }
}

// Scores in different chunks that differ by more than an exponential can represent; -inf; and keys that no
// query sees, whose NaN must not spread.
TEST(Decoding, ExtremesMeetAtTheMerge) {
  const AttentionShape shape{.query_len = 1, .key_len = 1100, .head_dim = 4, .value_dim = 3};
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Made m = made({shape, dtype});
      for (std::int64_t j = 0; j < 1100; ++j) {
        for (std::int64_t d = 0; d < 4; ++d) set_element(m.key, j * 4 + d, j == 700 && d == 0 ? 200.0 : 0.0);
        for (std::int64_t d = 0; d < 3; ++d)
          set_element(m.value, j * 3 + d, j >= 1000 ? NAN : static_cast<double>(j % 7));
      }
      for (std::int64_t d = 0; d < 4; ++d) set_element(m.query, d, 100.0);
      const AttentionPlan plan =
          make_plan({.mask = KeyLengths{{1000}}}, shape, {.dtype = dtype, .kernel = info.isa});
      attend(plan, {.query = m.query, .key = m.key, .value = m.value},
             {.output = m.output, .log_sum_exp = m.log_sum_exp});
      EXPECT_EQ(element(m.output, 0), 0.0) << info.isa;  // only key 700 has weight, and its value is 700 % 7
      EXPECT_NEAR(element(m.log_sum_exp, 0), 200.0 * 100.0 / 2.0, 1e-2);
      const AttentionPlan none =
          make_plan({.mask = KeyLengths{{0}}}, shape, {.dtype = dtype, .kernel = info.isa});
      attend(none, {.query = m.query, .key = m.key, .value = m.value},
             {.output = m.output, .log_sum_exp = m.log_sum_exp});
      EXPECT_EQ(element(m.output, 1), 0.0);
      EXPECT_EQ(element(m.log_sum_exp, 0), -std::numeric_limits<double>::infinity());
    }
  }
}

// If queries or keys of an additive score exceed the range of e^(2x), the tanh is computed pair by pair.
TEST(Additive, LargeScoresFallBackToTanh) {
  const std::int64_t queries = 9, keys = 150, hidden = 5;
  const AttentionShape shape{
      .query_len = queries, .key_len = keys, .head_dim = hidden, .value_dim = 2, .hidden = hidden};
  for (const double size : {0.5, 20.0, 30.0, 400.0, 1e30}) {
    Case c{.name = "additive", .spec = {.score = Additive{}}, .shape = shape};
    for (const KernelInfo& info : instruction_sets()) {
      if (!info.available) continue;
      for (const DType dtype : {DType::f32, DType::f64}) {
        const Tensor q = random_tensor(dtype, {1, 1, queries, hidden}, 1),
                     k = random_tensor(dtype, {1, 1, keys, hidden}, 2),
                     v = random_tensor(dtype, {1, 1, keys, 2}, 3), vector = random_tensor(dtype, {hidden}, 4);
        // Every third row is large. One key is the opposite of a query, so that their sum is small.
        for (std::int64_t i = 0; i < q.count(); ++i)
          if (i / hidden % 3 == 0) set_element(q, i, element(q, i) * size);
        for (std::int64_t i = 0; i < hidden; ++i) set_element(k, 4 * hidden + i, 0.25 - element(q, i));
        const Tensor weights(dtype, {1, 1, queries, keys});
        AttentionInputs in{.query = q, .key = k, .value = v};
        in.arguments.set("score.v", vector);
        const Tensor output(dtype, {1, 1, queries, 2});
        attend(make_plan(c.spec, shape, {.dtype = dtype, .kernel = info.isa}), in, {.output = output});
        for (std::int64_t r = 0; r < queries; ++r) {
          std::vector<double> scores;
          double best = -1e300, sum = 0.0, gathered = 0.0;
          for (std::int64_t j = 0; j < keys; ++j) {
            double score = 0.0;
            for (std::int64_t d = 0; d < hidden; ++d)
              score +=
                  element(vector, d) * std::tanh(element(q, r * hidden + d) + element(k, j * hidden + d));
            scores.push_back(score);
            best = std::max(best, score);
          }
          for (std::int64_t j = 0; j < keys; ++j) {
            const double weight = std::exp(scores[static_cast<std::size_t>(j)] - best);
            sum += weight;
            gathered += weight * element(v, j * 2);
          }
          // Scores are sums of `hidden` terms of order 1. Each is good to 16 roundings of the sum q + k,
          // which is rounded relative to its own size.
          const double eps = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
          const double tolerance = 16 * eps * static_cast<double>(hidden + keys);
          EXPECT_NEAR(element(output, r * 2), gathered / sum, tolerance)
              << info.isa << " " << size << " row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::testing
