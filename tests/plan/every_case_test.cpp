// Properties that every case of the table has, whatever the reference says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fovea/core/executor.h"
#include "plan/comparison.h"
#include "plan/sentences.h"

namespace fovea::testing {
namespace {

TEST(EveryCase, SameBitsForEveryThreadCount) {
  std::vector<std::unique_ptr<Executor>> pools;
  for (const int threads : {2, 3, 5}) pools.push_back(make_thread_pool(threads));
  for (const char* kernel : {"", "reference"}) {
    for (const Case& c : chosen_case_table(DType::f32)) {
      if (!has_kernel(c, DType::f32, kernel)) continue;
      const Operands o(c, DType::f32);
      const Results one = run_case(c, o, DType::f32, kernel, &serial_executor());
      for (const auto& pool : pools) {
        const auto a = one.all(), b = run_case(c, o, DType::f32, kernel, pool.get()).all();
        for (std::size_t n = 0; n < a.size(); ++n) {
          if (!a[n].second) continue;
          ASSERT_EQ(std::memcmp(a[n].second.raw(), b[n].second.raw(), a[n].second.bytes()), 0)
              << c.name << " " << a[n].first << " " << pool->thread_count() << " threads";
        }
      }
    }
  }
}

// Whether any query of a head that uses kv head `kv` sees key j of entry b.
bool any_sees(const Case& c, std::int64_t b, std::int64_t kv, std::int64_t j) {
  const AttentionShape& s = c.shape;
  const std::int64_t group = s.num_query_heads / s.num_kv_heads;
  const QueryBlock block{.batch = b, .query_end = 1, .key_len = s.key_len, .key_lengths = c.key_lengths};
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (std::int64_t i = 0; i < s.query_len; ++i) {
      if (c.spec.mask.node().allows(Site::at(b, h, i + c.offset(b), j), block)) return true;
    }
  }
  return false;
}

void expect_equal(const NamedTensors& want, const NamedTensors& got, const std::string& what) {
  for (std::size_t n = 0; n < want.size(); ++n) {
    const auto& [name, tensor] = want[n];
    for (std::int64_t i = 0; tensor && i < tensor.count(); ++i)
      ASSERT_EQ(element(got[n].second, i), element(tensor, i)) << what << ": " << name;
  }
}

// The instruction sets of this machine that have a kernel for the case, the reference among them. The others
// would run the reference once more.
std::vector<std::string> kernels_of(const Case& c) {
  std::vector<std::string> kernels;
  for (const KernelInfo& info : instruction_sets()) {
    if (info.available && has_kernel(c, DType::f32, info.isa)) kernels.push_back(info.isa);
  }
  return kernels;
}

// Keys that no query may see hold NaN; no result changes, forward or backward, in any kernel. A key of a kv
// head is unseen if no head of its group sees it, whatever other heads see.
TEST(EveryCase, HiddenKeysNeverMatter) {
  for (const Case& c : chosen_case_table(DType::f32)) {
    const Operands clean(c, DType::f32), poisoned(c, DType::f32);
    const AttentionShape& s = c.shape;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t j = 0; j < s.key_len; ++j) {
        for (std::int64_t h = 0; h < s.num_kv_heads; ++h) {
          if (any_sees(c, b, h, j)) continue;
          for (const Tensor& t : {poisoned.key ? poisoned.key : poisoned.value, poisoned.value}) {
            for (std::int64_t d = 0; d < t.size(3); ++d) {
              t.data<float>()[((b * s.num_kv_heads + h) * s.key_len + j) * t.size(3) + d] =
                  std::numeric_limits<float>::quiet_NaN();
            }
          }
        }
      }
    }
    for (const std::string& kernel : kernels_of(c)) {
      const NamedTensors want = run_case(c, clean, DType::f32, kernel).all(),
                         got = run_case(c, poisoned, DType::f32, kernel).all();
      expect_equal(want, got, kernel + ": " + c.name);
      if (HasFatalFailure()) return;
    }
  }
}

// Scores near 2^30, where an ulp is 64: a score that is rounded differently from the maximum would give
// weights of e^64. The operands are small integers, whose products are exact in float. So the weights must
// equal the reference's to the last bits.
TEST(EveryCase, HugeScoresStillSumToOne) {
  for (const KernelInfo& info : fast_kernels()) {
    if (!info.available) continue;
    const std::string kernel = info.isa;
    for (Case c : chosen_case_table(DType::f32)) {
      // A chain adds scores, and at this size only their rounding is left. Noise is less than an ulp of them.
      const Normalizer& normalizer = c.spec.normalizer;
      if (!std::holds_alternative<Dot>(c.spec.score) || std::holds_alternative<LinearChain>(normalizer) ||
          std::holds_alternative<HardSample>(normalizer) || std::holds_alternative<GumbelSample>(normalizer))
        continue;
      c.spec.mods.clear();
      c.mod_arguments.clear();
      c.spec.weight_mods.clear();
      c.weight_mod_arguments.clear();
      c.spec.scale = c.spec.scale.value_or(1.0) < 0 ? -1e9 / 3 : 1e9 / 3;
      const Operands o(c, DType::f32);
      for (const Tensor& t : {o.query, o.key}) {
        for (std::int64_t i = 0; i < t.count(); ++i) set_element(t, i, std::round(2.0 * element(t, i)));
      }
      const Results got = run_case(c, o, DType::f32, kernel), want = run_case(c, o, DType::f32, "reference");
      for (std::int64_t i = 0; i < want.weights.count(); ++i)
        ASSERT_NEAR(element(got.weights, i), element(want.weights, i), 0x1p-21) << kernel << ": " << c.name;
      for (std::int64_t i = 0; i < want.output.count(); ++i)
        ASSERT_NEAR(element(got.output, i), element(want.output, i), tolerance(c, DType::f32))
            << kernel << ": " << c.name;
      for (const auto& [name, tensor] : got.all()) {
        for (std::int64_t i = 0; tensor && i < tensor.count(); ++i)
          ASSERT_FALSE(std::isnan(element(tensor, i))) << kernel << ": " << c.name << ": " << name;
      }
    }
  }
}

// A NaN that a row sees is never lost, also one that comes from an infinity. In forward results it reaches
// exactly the rows that see it. In gradients it may reach more rows (0 · NaN inside one block), never fewer.
TEST(EveryCase, AVisibleNanStaysOne) {
  std::size_t turn = 0;
  for (Case c : chosen_case_table(DType::f32)) {
    if (c.shape.query_len == 0 || c.shape.key_len == 0) continue;
    if (++turn % 4 == 0) c.spec.scale = turn % 8 == 0 ? 0.0 : -0.7;
    for (const bool in_query : {true, false}) {
      const Operands o(c, DType::f32);
      if (!in_query && !o.key) continue;
      const double infinity = std::numeric_limits<double>::infinity(),
                   poison = turn % 3 == 0   ? std::numeric_limits<double>::quiet_NaN()
                            : turn % 3 == 1 ? infinity
                                            : -infinity;
      // The last row of the first head. The element is in the remainder of the vectors, if there is one.
      const Tensor& t = in_query ? o.query : o.key;
      set_element(t, t.size(2) * t.size(3) - 1, poison);
      const NamedTensors want = run_case(c, o, DType::f32, "reference").all();
      for (const std::string& kernel : kernels_of(c)) {
        if (kernel == "reference") continue;
        const bool in_terms = kernel == "amx" || kernel == "tiles";
        const NamedTensors got = run_case(c, o, DType::f32, kernel).all();
        for (std::size_t n = 0; n < want.size(); ++n) {
          const auto& [name, expected] = want[n];
          const Tensor result = got[n].second;
          for (std::int64_t i = 0; expected && i < expected.count(); ++i) {
            const bool nan = std::isnan(element(result, i)), must = std::isnan(element(expected, i));
            // Even in a NaN row, a visible score of -inf has weight 0 like a hidden key, and gradient 0.
            if (std::isinf(poison) && (n > 2 || (n == 2 && element(result, i) == 0.0))) continue;
            // In several terms an infinite element meets terms of both signs, whose sum is NaN.
            if (std::isinf(poison) && in_terms && nan) continue;
            ASSERT_TRUE(n < 3 ? nan == must : nan || !must)
                << kernel << ": " << c.name << ": " << name << "[" << i << "], NaN in the "
                << (in_query ? "query" : "key");
          }
        }
      }
    }
  }
}

TEST(EveryCase, FullyMaskedRowsAreZero) {
  for (const Case& c : chosen_case_table(DType::f32)) {
    const Operands o(c, DType::f32);
    const Results r = run_case(c, o, DType::f32, "");
    const AttentionShape& s = c.shape;
    for (std::int64_t row = 0; row < r.log_sum_exp.count(); ++row) {
      if (element(r.log_sum_exp, row) != -std::numeric_limits<double>::infinity()) continue;
      for (std::int64_t d = 0; d < s.value_dim; ++d)
        ASSERT_EQ(element(r.output, row * s.value_dim + d), 0.0) << c.name;
      for (std::int64_t d = 0; r.d_query && d < s.head_dim; ++d)
        ASSERT_EQ(element(r.d_query, row * s.head_dim + d), 0.0) << c.name;
    }
    for (const auto& [name, tensor] : r.all()) {
      for (std::int64_t i = 0; tensor && i < tensor.count(); ++i)
        ASSERT_FALSE(std::isnan(element(tensor, i))) << c.name << ": " << name;
    }
  }
}

// A row that sees no key gives 0 and changes no gradient, whatever its query and its d_output hold.
void expect_masked_rows_do_not_matter(const std::vector<Case>& cases,
                                      const std::function<std::vector<std::string>(const Case&)>& kernels) {
  for (const Case& c : cases) {
    const Operands clean(c, DType::f32);
    for (const std::string& kernel : kernels(c)) {
      const Operands poisoned(c, DType::f32);
      const Results result = run_case(c, clean, DType::f32, kernel);
      bool any = false;
      for (std::int64_t row = 0; row < result.log_sum_exp.count(); ++row) {
        if (element(result.log_sum_exp, row) != -std::numeric_limits<double>::infinity()) continue;
        any = true;
        for (const Tensor& t : {poisoned.query, poisoned.d_output}) {
          for (std::int64_t d = 0; d < t.size(3); ++d)
            set_element(t, row * t.size(3) + d, std::numeric_limits<double>::quiet_NaN());
        }
      }
      if (!any) continue;
      const NamedTensors want = result.all(), got = run_case(c, poisoned, DType::f32, kernel).all();
      expect_equal(want, got, kernel + ": " + c.name);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(EveryCase, FullyMaskedRowsNeverMatter) {
  expect_masked_rows_do_not_matter(chosen_case_table(DType::f32),
                                   [](const Case& c) { return kernels_of(c); });
}
TEST(EveryAlgorithm, FullyMaskedRowsOfSentencesNeverMatter) {
  expect_masked_rows_do_not_matter(sentences(), [](const Case&) { return short_kernels(); });
}

}  // namespace
}  // namespace fovea::testing
