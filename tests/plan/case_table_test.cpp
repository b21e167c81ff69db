#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "attention/names.h"
#include "fovea/attention/sample.h"
#include "fovea/core/executor.h"
#include "plan/comparison.h"
#include "plan/sentences.h"

namespace fovea::testing {
namespace {

// Describes where results differ by more than the tolerance; empty if nowhere. The gradient of an argument
// that all pairs share adds up their errors. These are independent and grow with the root of their number,
// though the sum may cancel.
std::string difference(const Results& got, const Results& want, double row_tolerance) {
  const auto a = got.all(), b = want.all();
  const double pairs = std::max<double>(1.0, static_cast<double>(want.weights.count()));
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (!a[n].second) continue;
    const std::string_view name = a[n].first;
    const bool shared = name.find('.') != name.npos || name.find("mod argument") != name.npos;
    const double tolerance = row_tolerance * (shared ? std::sqrt(pairs) : 1.0);
    double largest = 1.0;
    for (std::int64_t i = 0; i < b[n].second.count(); ++i) {
      if (std::isfinite(element(b[n].second, i)))
        largest = std::max(largest, std::abs(element(b[n].second, i)));
    }
    for (std::int64_t i = 0; i < a[n].second.count(); ++i) {
      const double x = element(a[n].second, i), y = element(b[n].second, i);
      if (x == y || std::abs(x - y) <= tolerance * largest) continue;  // infinities too; never a NaN
      return std::string(a[n].first) + "[" + std::to_string(i) + "] is " + std::to_string(x) +
             ", the reference says " + std::to_string(y);
    }
  }
  return {};
}

// The name of a mod in the grammar: its text up to the parentheses.
std::string name_of(const Mod& mod) {
  const std::string text = to_string(mod);
  return text.substr(0, text.find('('));
}

// A part that is added without a row here would not be tested at all.
TEST(CaseTable, HasEveryScoreModAndNormalizer) {
  std::set<std::size_t> scores, normalizers;
  std::set<std::string> mods;
  for (const Factor& factor : case_factors(Shapes::all)) {
    for (const Level& level : factor.levels) {
      Case c;
      level.apply(c);
      scores.insert(c.spec.score.index());
      normalizers.insert(c.spec.normalizer.index());
      for (const Mods& list : {c.spec.mods, c.spec.weight_mods})
        for (const Mod& mod : list) mods.insert(name_of(mod));
    }
  }
  EXPECT_EQ(scores.size(), std::variant_size_v<Score>);
  EXPECT_EQ(normalizers.size(), std::variant_size_v<Normalizer>);
  for (const ModName& row : mod_names()) EXPECT_TRUE(mods.contains(row.name)) << row.name;
}

// The best key may depend on the last bit of its score. Rows where another key won must be few, and no other
// forward result may differ. Gradients cannot be compared then.
bool other_keys_won(const Case& c, const Results& got, const Results& want, double tolerance) {
  const Normalizer& normalizer = c.spec.normalizer;
  const bool one_key = std::holds_alternative<HardArgmax>(normalizer) ||
                       std::holds_alternative<HardSample>(normalizer) ||
                       std::holds_alternative<GumbelSample>(normalizer);
  if (!one_key || c.dtype == DType::f64) return false;
  std::int64_t differing = 0;
  const std::int64_t rows = want.log_sum_exp.count(), dim = c.shape.value_dim;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double a = element(got.log_sum_exp, row), b = element(want.log_sum_exp, row);
    // With coverage, another choice in an earlier row also changes the scores.
    if (a != b && !std::holds_alternative<Coverage>(c.spec.score) &&
        std::abs(a - b) > tolerance * std::max(1.0, std::abs(b)))
      return false;
    bool same = true;
    for (std::int64_t d = row * dim; d < (row + 1) * dim; ++d)
      same = same && std::abs(element(got.output, d) - element(want.output, d)) <=
                         tolerance * std::max(1.0, std::abs(element(want.output, d)));
    differing += same ? 0 : 1;
  }
  // With coverage, the later rows of a head follow.
  const std::int64_t most =
      std::holds_alternative<Coverage>(c.spec.score) ? c.shape.query_len : 1 + rows / 100;
  return differing <= most;
}

// Runs the case on each of these kernels and on the reference. Empty: all agree.
std::string disagreement(const Case& c, const std::vector<std::string>& kernels) {
  const Operands o(c, c.dtype);
  const Results want = run_case(c, o, c.dtype, "reference");
  for (const std::string& kernel : kernels) {
    const Results got = run_case(c, o, c.dtype, kernel);
    const std::string text = difference(got, want, tolerance(c, c.dtype));
    if (!text.empty() && !other_keys_won(c, got, want, tolerance(c, c.dtype)))
      return kernel + ": " + c.name + ": " + text;
  }
  return "";
}

class EveryKernel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryKernel, AgreesWithTheReference) {
  const std::string kernel = GetParam();
  for (const KernelInfo& info : fast_kernels()) {
    if (info.isa == kernel && !info.available) GTEST_SKIP() << kernel << " not run: this CPU lacks it";
  }
  for (const Case& c : case_table()) ASSERT_EQ(disagreement(c, {kernel}), "");
}

// Every algorithm is forced on every case that it takes. Other algorithms of its instruction set do what it
// cannot do. The reference runs once for all.
TEST(EveryAlgorithm, AgreesWithTheReferenceWhereItIsForced) {
  std::map<std::string, int> ran;
  for (const KernelInfo& info : list_kernels()) {
    if (info.available && info.isa != "reference") ran[info.name] = 0;
  }
  // The covering table has no plain bf16 case, but decoding and products of one term take only these.
  std::vector<Case> cases = case_table();
  for (const std::int64_t queries : {7, 40}) {
    Case plain{
        .name = "plain bf16 " + std::to_string(queries), .spec = {.mask = Causal{}}, .dtype = DType::bf16};
    plain.shape = {.num_query_heads = 4,
                   .num_kv_heads = 2,
                   .query_len = queries,
                   .key_len = 300,
                   .head_dim = 24,
                   .value_dim = 40};
    cases.push_back(plain);
  }
  // A tenth of the table may have no case that `additive` takes.
  Case additive = cases.back();
  additive.name = "plain additive";
  additive.spec.score = Additive{};
  additive.dtype = DType::f32;
  additive.shape.hidden = 24;
  cases.push_back(additive);
  for (const Case& c : cases) {
    std::vector<std::string> accepting;
    for (auto& [name, count] : ran) {
      try {
        make_plan(c.spec, c.shape, {.dtype = c.dtype, .precision = Precision::higher, .kernel = name});
      } catch (const InvalidArgument& refusal) {
        ASSERT_EQ(refusal.argument(), "options.kernel") << refusal.what();
        continue;
      }
      accepting.push_back(name);
      ++count;
    }
    ASSERT_EQ(disagreement(c, accepting), "");
  }
  for (const auto& [name, count] : ran) EXPECT_GT(count, 0) << name << " was refused by every case";
}

TEST(EveryAlgorithm, SentencesAgreeWithTheReference) {
  ASSERT_FALSE(short_kernels().empty());
  for (const Case& c : sentences()) ASSERT_EQ(disagreement(c, short_kernels()), "");
}

// The full table is large, so its cases run in parallel with one thread each. The reference runs once for all
// kernels.
TEST(FullTable, EveryKernelAgreesWithTheReference) {
  if (!full_cases_wanted()) GTEST_SKIP() << "FOVEA_CASES=full asks for it";
  std::vector<std::string> kernels;
  for (const KernelInfo& info : fast_kernels()) {
    if (info.available) kernels.push_back(info.isa);
  }
  const std::vector<Case>& cases = full_case_table();
  std::mutex mutex;
  std::vector<std::string> failures;
  default_executor().parallel_for(static_cast<std::int64_t>(cases.size()), [&](std::int64_t n, int) {
    const std::string text = disagreement(cases[static_cast<std::size_t>(n)], kernels);
    const std::lock_guard lock(mutex);
    if (!text.empty()) failures.push_back(text);
  });
  for (std::size_t n = 0; n < failures.size() && n < 20; ++n) ADD_FAILURE() << failures[n];
  EXPECT_EQ(failures.size(), 0u);
}

std::vector<std::string> fast_kernel_names() {
  std::vector<std::string> names;
  for (const KernelInfo& info : fast_kernels()) names.push_back(info.isa);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Isa, EveryKernel, ::testing::ValuesIn(fast_kernel_names()),
                         [](const auto& info) { return info.param; });

// Σ dO·O + Σ dP·P over the outputs of a call.
double loss_of(const Case& c, const Operands& o, const AttentionSpec& spec, const AttentionInputs& inputs) {
  const AttentionPlan plan = make_plan(spec, c.shape, {.dtype = DType::f64, .kernel = "reference"});
  const Tensor out(DType::f64, o.d_output.shape());
  AttentionOutputs outputs{.output = out};
  Tensor weights;
  if (o.d_weights) {
    outputs.weights = weights = Tensor(DType::f64, o.d_weights.shape());
    outputs.weight_heads = c.weight_heads;
    outputs.weight_rows = c.weight_rows;
  }
  attend(plan, inputs, outputs);
  double sum = 0.0;
  for (std::int64_t i = 0; i < out.count(); ++i) sum += element(out, i) * element(o.d_output, i);
  for (std::int64_t i = 0; weights && i < weights.count(); ++i)
    sum += element(weights, i) * element(o.d_weights, i);
  return sum;
}

// The loss whose gradient a sampled output's gradient estimates; the sampled output itself has none. For the
// score function it is Σ advantage · ln P(drawn), for straight-through Gumbel the loss of softmax((s + noise)
// / temperature).
class Surrogate {
 public:
  Surrogate(const Case& c, const Operands& o) : case_(c), operands_(o), spec_(c.spec) {
    const AttentionShape& s = c.shape;
    const Shape rows{s.batch, s.num_query_heads, s.query_len, s.key_len};
    spec_.normalizer = Softmax{};
    if (std::holds_alternative<HardSample>(c.spec.normalizer)) {
      drawn_ = weights(c.spec);
      return;
    }
    noise_ = Tensor(DType::f64, rows);
    for (std::int64_t i = 0; i < noise_.count(); ++i) {
      const std::int64_t j = i % s.key_len, row = i / s.key_len, query = row % s.query_len,
                         h = row / s.query_len % s.num_query_heads, b = row / s.query_len / s.num_query_heads;
      set_element(noise_, i,
                  gumbel_noise(43, b, h, query + c.offset(b), j / 4)[static_cast<std::size_t>(j % 4)]);
    }
    // Inserts before the mods that hide keys, because no other mod may follow those.
    while (hiding_ < spec_.mods.size() && spec_.mods[spec_.mods.size() - 1 - hiding_].node().hides())
      ++hiding_;
    const Mods noisy{DenseBias{}, Temperature{std::get<GumbelSample>(c.spec.normalizer).temperature}};
    spec_.mods.insert(spec_.mods.end() - static_cast<std::ptrdiff_t>(hiding_), noisy.begin(), noisy.end());
  }
  double loss() const {
    if (noise_) {
      AttentionInputs in = operands_.inputs(case_);
      // Noise and temperature go before the hiding mods. Each of these has one argument, which moves back.
      const std::size_t before = case_.spec.mods.size() - hiding_;
      Arguments moved;
      for (const auto& [name, argument] : operands_.arguments) {
        std::size_t mod = 0;
        const bool of_mod = std::sscanf(name.c_str(), "mods[%zu]", &mod) == 1;
        moved.set(of_mod && mod >= before
                      ? "mods[" + std::to_string(mod + 2) + "]" + name.substr(name.find('.'))
                      : name,
                  argument);
      }
      moved.set("mods[" + std::to_string(before) + "].bias", noise_);
      in.arguments = moved;
      return loss_of(case_, operands_, spec_, in);
    }
    AttentionSpec plain = spec_;
    plain.weight_mods.clear();
    const Tensor soft = weights(plain);
    double sum = 0.0;
    for (std::int64_t i = 0; i < soft.count(); ++i) {
      if (element(drawn_, i) > 0.0)
        sum += element(operands_.advantage, i / case_.shape.key_len) * std::log(element(soft, i));
    }
    return sum;
  }

 private:
  // The weights of all heads and rows, without weight mods.
  Tensor weights(AttentionSpec spec) const {
    spec.weight_mods.clear();
    const AttentionShape& s = case_.shape;
    Tensor result(DType::f64, {s.batch, s.num_query_heads, s.query_len, s.key_len});
    AttentionInputs in = operands_.inputs(case_);
    in.arguments = {};
    for (const auto& [name, argument] : operands_.arguments) {
      if (!name.starts_with("weight_mods[")) in.arguments.set(name, argument);
    }
    attend(make_plan(spec, s, {.dtype = DType::f64, .kernel = "reference"}), in,
           {.output = {}, .weights = result});
    return result;
  }

  const Case& case_;
  const Operands& operands_;
  AttentionSpec spec_;
  Tensor drawn_, noise_;
  std::size_t hiding_ = 0;  // number of mods at the end that hide keys
};

// Central differences in double against the reference: every operand and every parameter.
TEST(Reference, GradientsAreDerivatives) {
  for (const Case& c : chosen_case_table(DType::f64, Shapes::cheapest)) {
    const bool sampled = std::holds_alternative<HardSample>(c.spec.normalizer) ||
                         std::holds_alternative<GumbelSample>(c.spec.normalizer);
    const bool sparse = std::holds_alternative<Sparsemax>(c.spec.normalizer) ||
                        std::holds_alternative<Entmax>(c.spec.normalizer);
    // The weights that a later row sees depend on the earlier draws, which have no derivative.
    if (sampled && std::holds_alternative<Coverage>(c.spec.score)) continue;
    const Operands o(c, DType::f64);
    const Results r = run_case(c, o, DType::f64, "reference");
    std::optional<Surrogate> surrogate;
    if (sampled) surrogate.emplace(c, o);
    const auto direct = [&] { return loss_of(c, o, c.spec, o.inputs(c)); };
    const auto by_scores = [&] { return surrogate ? surrogate->loss() : direct(); };
    const auto check = [&](const char* name, const Tensor& operand, const Tensor& gradient, auto&& loss) {
      for (std::int64_t i = 0; gradient && i < operand.count(); i += 1 + operand.count() / 5) {
        const double want = element(gradient, i), at = element(operand, i);
        const auto central = [&](double h) {
          set_element(operand, i, at + h);
          const double up = loss();
          set_element(operand, i, at - h);
          const double down = loss();
          set_element(operand, i, at);
          return (up - down) / (2 * h);
        };
        // h² times a third derivative of order 10², plus rounding eps·|loss|/h. The loss of a sparse
        // normaliser has kinks where a key enters the support. A kink inside ±1e-5 is rarely inside ±1e-7
        // too.
        const double bound = 1e-7 * (1 + std::abs(want));
        double got = central(1e-5);
        if (!(std::abs(got - want) <= bound) && sparse) got = central(1e-7);
        ASSERT_NEAR(got, want, bound) << c.name << ": " << name << "[" << i << "]";
      }
    };
    check("value", o.value, r.d_value, direct);
    check("query", o.query, r.d_query, by_scores);
    check("key", o.key, r.d_key, by_scores);
    for (const auto& [name, gradient] : r.d_arguments) {
      const auto of = std::find_if(o.arguments.begin(), o.arguments.end(),
                                   [&](const auto& argument) { return argument.first == name; });
      if (name.starts_with("weight_mods["))
        check(name.c_str(), of->second, gradient, direct);
      else
        check(name.c_str(), of->second, gradient, by_scores);
    }
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fovea::testing
