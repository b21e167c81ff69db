// Packed batches: every entry equals a separate call, and no entry affects another.
#include <gtest/gtest.h>

#include "fovea/attention/expression.h"
#include "fovea/core/executor.h"
#include "plan/packed_cases.h"

namespace fovea::testing {
namespace {

// The tolerance of case_table_test.cpp. Kernels split keys into chunks by the shape of a call. So the sums of
// an entry may have another order than in the padded batch.
double tolerance(const Case& c) {
  const double eps = c.dtype == DType::f64   ? 0x1p-52
                     : c.dtype == DType::f32 ? 0x1p-23
                     : c.dtype == DType::f16 ? 0x1p-10
                                             : 0x1p-7;
  const auto longest = static_cast<double>(
      std::max({c.shape.query_len, c.shape.key_len, c.shape.head_dim, c.shape.value_dim}));
  return (std::holds_alternative<LinearChain>(c.spec.normalizer) ? 64.0 : 16.0) * eps * longest;
}

double largest_of(const Tensor& t) {
  double largest = 1.0;
  for (std::int64_t i = 0; i < t.count(); ++i) {
    if (std::isfinite(element(t, i))) largest = std::max(largest, std::abs(element(t, i)));
  }
  return largest;
}

bool near(double a, double b, double tolerance) {
  return a == b || std::abs(a - b) <= tolerance;  // equal infinities agree, a NaN agrees with nothing
}

// Compares entry e of `want`, [entries, heads, rows, width], with rows [begin, begin + rows) of `got`. The
// rows of `got` may be wider; their additional elements must be 0. Returns the first difference as text, or
// an empty text if there is none.
std::string difference(const Tensor& got, const Tensor& want, std::int64_t e, std::int64_t begin,
                       double tolerance) {
  if (!got) return {};
  const std::int64_t heads = want.size(1), rows = want.size(2), width = want.rank() == 4 ? want.size(3) : 1,
                     wide = got.rank() == 4 ? got.size(3) : 1;
  const double most = tolerance * largest_of(want);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t d = 0; d < wide; ++d) {
        const double x = element(got, (h * got.size(2) + begin + r) * wide + d),
                     y = d < width ? element(want, ((e * heads + h) * rows + r) * width + d) : 0.0;
        if (!near(x, y, d < width ? most : 0.0))
          return "[" + std::to_string(h) + ", " + std::to_string(r) + ", " + std::to_string(d) + "] is " +
                 std::to_string(x) + ", alone " + std::to_string(y);
      }
    }
  }
  return {};
}

std::string disagreement(const PackedCase& p, const std::string& kernel) {
  const Case& c = p.padded;
  const Operands o(c, c.dtype);
  const Results got = run_packed(p, o, kernel, default_executor());
  NamedTensors sums;
  for (const auto& [name, argument] : o.arguments) {
    if (wants_gradient(c, name)) sums.emplace_back(name, Tensor::zeros(DType::f64, argument.shape()));
  }
  const auto query_starts = PackedCase::starts(p.queries), key_starts = PackedCase::starts(p.keys);
  for (std::int64_t e = 0; e < 5; ++e) {
    const Results want = run_padded(p, o, e, kernel, sums);
    const auto list = got.all(), alone = want.all();
    for (std::size_t n = 0; n < 6; ++n) {
      const bool by_key = list[n].first == "d_key" || list[n].first == "d_value";
      const auto begin = (by_key ? key_starts : query_starts)[static_cast<std::size_t>(e)];
      const std::string text = difference(list[n].second, alone[n].second, e, begin, tolerance(c));
      if (!text.empty()) return list[n].first + " of entry " + std::to_string(e) + " " + text;
    }
  }
  const double pairs = std::sqrt(static_cast<double>(got.weights.count() + 1));
  for (std::size_t n = 0; n < sums.size(); ++n) {
    const Tensor &x = got.d_arguments[n].second, &y = sums[n].second;
    const double most = tolerance(c) * pairs * largest_of(y);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      if (!near(element(x, i), element(y, i), most))
        return sums[n].first + "[" + std::to_string(i) + "] is " + std::to_string(element(x, i)) +
               ", entries add up to " + std::to_string(element(y, i));
    }
  }
  return {};
}

class PackedBatches : public ::testing::TestWithParam<std::string> {};

TEST_P(PackedBatches, EntriesEqualPaddedCalls) {
  for (const KernelInfo& info : instruction_sets()) {
    if (info.isa == GetParam() && !info.available) GTEST_SKIP() << info.isa << " not run: this CPU lacks it";
  }
  for (const PackedCase& p : packed_cases()) {
    if (has_kernel(p.padded, p.padded.dtype, GetParam()))
      ASSERT_EQ(disagreement(p, GetParam()), "") << GetParam() << ": " << p.padded.name;
  }
}

TEST_P(PackedBatches, SameBitsForEveryThreadCount) {
  for (const KernelInfo& info : instruction_sets()) {
    if (info.isa == GetParam() && !info.available) GTEST_SKIP() << info.isa << " not run: this CPU lacks it";
  }
  const auto two = make_thread_pool(2), five = make_thread_pool(5);
  for (const PackedCase& p : packed_cases()) {
    const Operands o(p.padded, p.padded.dtype);
    const auto want = run_packed(p, o, GetParam(), serial_executor()).all();
    for (Executor* executor : {two.get(), five.get()}) {
      const auto got = run_packed(p, o, GetParam(), *executor).all();
      for (std::size_t n = 0; n < want.size(); ++n) {
        if (!want[n].second) continue;
        ASSERT_EQ(std::memcmp(got[n].second.raw(), want[n].second.raw(), want[n].second.bytes()), 0)
            << p.padded.name << ": " << want[n].first;
      }
    }
  }
}

// Adds the gradients of shared arguments in the order of the entries, from 0.
void add_in_order(const Tensor& part, const Tensor& sum) {
  for (std::int64_t i = 0; i < sum.count(); ++i) {
    if (sum.dtype() == DType::f64)
      sum.data<double>()[i] += part.data<double>()[i];
    else
      sum.data<float>()[i] += part.data<float>()[i];
  }
}

// A few long entries among many short ones. All threads together run a long entry. The entries' gradients of
// a bilinear W in f64 need more memory than may wait to be added (slots_budget in packed_backward.cpp).
class Mixed {
 public:
  explicit Mixed(AttentionSpec spec, DType dtype) {
    c_.spec = std::move(spec);
    c_.dtype = dtype;
    queries_ = {5, 300, 1, 0, 64, 1, 7, 3, 130};
    keys_ = {9, 300, 400, 5, 64, 1, 130, 0, 260};
    for (std::int64_t n = 0; n < 31; ++n) {
      queries_.push_back(1 + n % 6);
      keys_.push_back(1 + 2 * n);
    }
    c_.shape = shape(static_cast<std::int64_t>(queries_.size()), 300, 400);
    if (definition(c_.spec.score).has_matrix()) c_.shape.key_dim = 40;
    for (const DeclaredArgument& argument : declared_arguments(c_.spec)) {
      if (argument.name.starts_with("mods[")) c_.mod_arguments.push_back({1, 4, 1, entries_of(argument)});
    }
  }

  /// Compares the packed call on each executor with one call for each entry.
  void compare(const std::string& kernel, const std::vector<Executor*>& executors) const {
    PackedCase p(c_);
    p.queries = queries_;
    p.keys = keys_;
    const Operands all(c_, c_.dtype);
    std::vector<Results> alone;
    NamedTensors sums;
    for (const auto& [name, argument] : all.arguments)
      sums.emplace_back(name, Tensor::zeros(argument.dtype(), argument.shape()));
    for (std::size_t e = 0; e < queries_.size(); ++e) {
      alone.push_back(queries_[e] > 0 && keys_[e] > 0 ? run_alone(all, e, kernel) : Results());
      for (std::size_t n = 0; n < alone.back().d_arguments.size(); ++n)
        add_in_order(alone.back().d_arguments[n].second, sums[n].second);
    }
    const auto query_starts = PackedCase::starts(queries_), key_starts = PackedCase::starts(keys_);
    for (Executor* executor : executors) {
      const Results got = run_packed(p, all, kernel, *executor);
      for (std::size_t e = 0; e < alone.size(); ++e) {
        const auto list = got.all(), want = alone[e].all();
        for (std::size_t n = 0; n < 6 && want[0].second; ++n) {
          const bool by_key = list[n].first == "d_key" || list[n].first == "d_value";
          ASSERT_EQ(difference(list[n].second, want[n].second, 0, (by_key ? key_starts : query_starts)[e], 0),
                    "")
              << list[n].first << " of entry " << e;
        }
      }
      for (std::size_t n = 0; n < sums.size(); ++n)
        expect_near(got.d_arguments[n].second, sums[n].second, 0, sums[n].first);
    }
  }

 private:
  static AttentionShape shape(std::int64_t batch, std::int64_t queries, std::int64_t keys) {
    return {.batch = batch,
            .num_query_heads = 4,
            .num_kv_heads = 2,
            .query_len = queries,
            .key_len = keys,
            .head_dim = 32,
            .value_dim = 24};
  }
  Results run_alone(const Operands& all, std::size_t e, const std::string& kernel) const {
    Case own = c_;
    own.shape = shape(1, queries_[e], keys_[e]);
    own.shape.key_dim = c_.shape.key_dim;
    Operands o = all;
    const auto rows = [&](const Tensor& t, std::int64_t length) {
      const Tensor one(t.dtype(), {1, t.size(1), t.size(2), t.size(3)});
      std::memcpy(one.raw(), t.raw() + e * one.bytes(), one.bytes());
      return cut(one, {1, t.size(1), length, t.size(3)});
    };
    o.query = rows(all.query, queries_[e]);
    o.key = rows(all.key, keys_[e]);
    o.value = rows(all.value, keys_[e]);
    o.d_output = rows(all.d_output, queries_[e]);
    return run_case(own, o, c_.dtype, kernel);
  }
  static std::int64_t entries_of(const DeclaredArgument& argument) {
    const ArgumentAxis& last = argument.declaration.axes[3];
    return last.size ? 1 : last.number;
  }

  Case c_;
  std::vector<std::int64_t> queries_, keys_;
};

// A packed entry has the bits of its own call if nothing in the spec depends on the index of the entry. This
// holds for forward, for backward, and for the sums over entries.
TEST(PackedEntries, AnEntryHasTheBitsOfItsOwnCall) {
  const auto two = make_thread_pool(2), five = make_thread_pool(5);
  const std::vector<AttentionSpec> specs{{.mask = Causal{}},
                                         {.score = Bilinear{}, .mask = Causal{}},
                                         {.mods = {SoftCap{2}, AlibiBias{}},
                                          .mask = Causal{} & SlidingWindow{.lookback = 40},
                                          .normalizer = SoftmaxWithSink{}},
                                         {.mods = {RelativeBias{8, 50}}, .normalizer = Sparsemax{}}};
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const AttentionSpec& spec : specs) {
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        // The reference takes a microsecond for each pair in a head of the largest entry.
        if (info.isa == "reference" && (dtype != DType::f64 || !spec.mods.empty())) continue;
        SCOPED_TRACE(info.isa + " " + to_string(spec.score) + " " + to_string(spec.normalizer) + " " +
                     std::string(to_string(dtype)));
        const Mixed mixed(spec, dtype);
        mixed.compare(info.isa, {&serial_executor(), two.get(), five.get()});
        if (HasFatalFailure()) return;
      }
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const KernelInfo& info : instruction_sets()) list.push_back(info.isa);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Isa, PackedBatches, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fovea::testing
