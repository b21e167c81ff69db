// Which algorithm runs which call: the choice of make_plan, the text of explain, and forcing by name.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>

#include "fovea/attention/masks.h"
#include "plan/case_table.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

bool available(const std::string& isa) {
  for (const KernelInfo& info : list_kernels()) {
    if (info.isa == isa) return info.available;
  }
  return false;
}

std::string first_line(const AttentionPlan& plan) {
  const std::string text = explain(plan);
  return text.substr(0, text.find('\n'));
}

// The lines that say which kernels refused.
std::string refusals(const AttentionPlan& plan) {
  std::istringstream text(explain(plan));
  std::string lines;
  for (std::string line; std::getline(text, line);) {
    if (line.find("refused ") != std::string::npos) lines += line + "\n";
  }
  return lines;
}

AttentionShape shape_of(std::int64_t queries) {
  return {.query_len = queries, .key_len = 600, .head_dim = 16, .value_dim = 16};
}

struct Expectation {
  std::string isa;
  AttentionSpec spec;
  DType dtype;
  std::int64_t queries;
  std::string forward, backward;  // as explain prints them
};

TEST(Candidates, AreChosenByTheCountOfQueries) {
  const AttentionSpec dot, rows{.normalizer = Sparsemax{}}, capped{.mods = {SoftCap{5}}};
  const auto of = [](const std::string& isa, const std::string& algorithm) { return isa + " " + algorithm; };
  std::vector<Expectation> all;
  for (const std::string isa : {"avx512", "avx2", "baseline"}) {
    const std::string split = of(isa, "split"), tiled = of(isa, "tiled"), direct = of(isa, "direct"),
                      row = of(isa, "rows"), tiled_rows = of(isa, "tiled rows");
    const std::string few_keys = ", " + of(isa, "short") + " up to 32 queries of 64 keys",
                      many = tiled + ", " + split + " up to 8 queries",
                      back = tiled + ", " + direct + " up to 4 queries",
                      many_rows = tiled_rows + ", " + row + " up to 4 queries";
    all.push_back({isa, dot, DType::f32, 1, split, direct});
    all.push_back({isa, dot, DType::f32, 8, split, back + few_keys});
    all.push_back({isa, dot, DType::f64, 9, many + few_keys, back + few_keys});
    all.push_back({isa, capped, DType::f32, 400, many, back});
    all.push_back({isa, dot, DType::f16, 32, split, back + few_keys});
    all.push_back({isa, dot, DType::bf16, 33, tiled + ", " + split + " up to 32 queries", back + few_keys});
    all.push_back({isa, rows, DType::bf16, 4, row, row});
    all.push_back({isa, rows, DType::f32, 5, many_rows, many_rows});
  }
  for (const std::string isa : {"amx", "avx512bf16"}) {
    const std::string tiles = of(isa, "tiles"), decode = "avx512bf16 decode";
    all.push_back({isa, dot, DType::bf16, 16, decode, tiles + ", avx512 direct up to 4 queries"});
    all.push_back({isa, dot, DType::bf16, 17, tiles + ", " + decode + " up to 16 queries",
                   tiles + ", avx512 direct up to 4 queries"});
  }
  all.push_back({"amx", dot, DType::f16, 9, "amx tiles, avx512 split up to 8 queries",
                 "amx tiles, avx512 direct up to 4 queries"});
  for (const Expectation& e : all) {
    if (!available(e.isa) || (e.isa == "amx" && !available("avx512bf16"))) continue;
    const AttentionPlan plan = make_plan(e.spec, shape_of(e.queries), {.dtype = e.dtype, .kernel = e.isa});
    const std::string line = first_line(plan), want = e.forward + "; backward " + e.backward;
    EXPECT_EQ(line, want);
    EXPECT_TRUE(line.starts_with(plan.kernel())) << line;
    EXPECT_NE(line.find("; backward " + std::string(plan.backward_kernel())), std::string::npos) << line;
  }
}

// On a plan for many queries, a call of few queries runs exactly as on a plan for so few: the same bits, with
// its weights and gradients.
TEST(Candidates, OfAShortCallAreThoseOfAShortPlan) {
  struct Run {
    Tensor output, log_sum_exp, weights, d_query, d_key, d_value;
  };
  const auto run = [](const AttentionPlan& plan, const Tensor& q, const Tensor& k, const Tensor& v,
                      bool weights) {
    const DType wide = plan.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const std::int64_t queries = q.size(2), keys = k.size(2);
    Run r{Tensor(plan.dtype(), q.shape()),     Tensor(wide, {1, 2, queries}),
          Tensor(wide, {1, 2, queries, keys}), Tensor(plan.dtype(), q.shape()),
          Tensor(plan.dtype(), k.shape()),     Tensor(plan.dtype(), v.shape())};
    const AttentionInputs in{.query = q, .key = k, .value = v};
    AttentionOutputs out{.output = r.output, .log_sum_exp = r.log_sum_exp};
    if (weights)
      out.weights = r.weights;
    else
      r.weights.fill(0);
    attend(plan, in, out);
    attend_backward(plan, in, r.output, r.log_sum_exp, q, {r.d_query, r.d_key, r.d_value});
    return r;
  };
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (const AttentionSpec& spec : {AttentionSpec{.mask = Causal{}}, {.normalizer = Sparsemax{}}}) {
        const PlanOptions options{.dtype = dtype, .kernel = info.isa};
        AttentionShape capacity{
            .num_query_heads = 2, .query_len = 70, .key_len = 300, .head_dim = 16, .value_dim = 16};
        const AttentionPlan large = make_plan(spec, capacity, options);
        const auto expect_same = [&](std::int64_t queries, std::int64_t keys) {
          const Tensor q = random_tensor(dtype, {1, 2, queries, 16}, 1),
                       k = random_tensor(dtype, {1, 1, keys, 16}, 2),
                       v = random_tensor(dtype, {1, 1, keys, 16}, 3);
          AttentionShape own = capacity;
          own.query_len = queries;
          own.key_len = keys;
          for (const bool weights : {false, true}) {
            const Run a = run(large, q, k, v, weights),
                      b = run(make_plan(spec, own, options), q, k, v, weights);
            SCOPED_TRACE(info.isa + " " + std::string(to_string(dtype)) + " " + std::to_string(queries) +
                         " x " + std::to_string(keys));
            expect_same_bits({a.output, a.log_sum_exp, a.weights, a.d_query, a.d_key, a.d_value},
                             {b.output, b.log_sum_exp, b.weights, b.d_query, b.d_key, b.d_value});
          }
        };
        for (const std::int64_t queries : {1, 4, 5, 8, 9, 16, 17, 32, 33, 70}) expect_same(queries, 290);
        for (const std::int64_t queries : {4, 5, 9, 14, 32, 33}) {
          for (const std::int64_t keys : {14, 64, 65}) expect_same(queries, keys);
        }
      }
    }
  }
}

TEST(Candidates, AreForcedByName) {
  for (const KernelInfo& info : list_kernels()) {
    if (!info.available) {
      EXPECT_THROW(make_plan({}, shape_of(9), {.kernel = info.name}), InvalidArgument) << info.name;
      continue;
    }
    const AttentionSpec spec{.score = info.name.ends_with("additive") ? Score(Additive{}) : ScaledDot{}};
    for (const std::int64_t queries : {1, 40}) {
      AttentionShape shape = shape_of(queries);
      shape.hidden = 16;
      const AttentionPlan plan =
          make_plan(spec, shape,
                    {.dtype = info.name.find("bf16") == info.name.npos ? DType::f16 : DType::bf16,
                     .kernel = info.name});
      EXPECT_EQ(plan.kernel(), info.name);
      // There is one name for every count of queries: the text has no other forward kernel.
      EXPECT_TRUE(first_line(plan).starts_with(info.name + "; backward ")) << first_line(plan);
      const bool forward_only = info.name.ends_with("split") || info.name.ends_with("decode");
      EXPECT_EQ(plan.backward_kernel() == info.name, !forward_only) << first_line(plan);
    }
    // Naming only its instruction set leaves the choice to the plan.
    EXPECT_NO_THROW(make_plan({.normalizer = Sparsemax{}}, shape_of(9), {.kernel = info.isa}));
  }
}

TEST(Candidates, GiveAReasonWhereForcedInVain) {
  const auto said = [](const AttentionSpec& spec, const PlanOptions& options) -> std::string {
    try {
      make_plan(spec, shape_of(9), options);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "options.kernel");
      return error.got();
    }
    return "accepted";
  };
  EXPECT_EQ(said({.normalizer = Sparsemax{}}, {.kernel = "baseline split"}),
            "baseline split: whole rows of scores are needed");
  EXPECT_EQ(said({.score = Location{}}, {.kernel = "baseline tiled"}), "accepted");  // a product of rows
  EXPECT_EQ(said({}, {.kernel = "portable tiles"}), "portable tiles: f32 at Precision::full");
  EXPECT_EQ(said({.mods = {SoftCap{2}}}, {.dtype = DType::f16, .kernel = "portable tiles"}), "accepted");
  EXPECT_EQ(said({.normalizer = Sigmoid{}}, {.dtype = DType::f16, .kernel = "portable tiles"}),
            "portable tiles: its normaliser is not softmax");
  EXPECT_EQ(said({.mods = {SoftCap{2}}}, {.kernel = "baseline short"}), "baseline short: it has mods");
  EXPECT_EQ(said({.normalizer = Sigmoid{}}, {.kernel = "baseline short"}),
            "baseline short: its normaliser is not softmax");
  EXPECT_EQ(said({}, {.kernel = "baseline flash"}), "'baseline flash'");
}

// The better candidates that refused are listed, each reason once.
TEST(Candidates, ExplainNamesRefusals) {
  const AttentionPlan rows = make_plan({.normalizer = Sparsemax{}}, shape_of(40), {.kernel = "baseline"});
  EXPECT_EQ(first_line(rows),
            "baseline tiled rows, baseline rows up to 4 queries; backward baseline tiled rows, baseline rows "
            "up to 4 queries");
  EXPECT_EQ(
      refusals(rows),
      "refused baseline split, baseline short, baseline tiled, baseline additive, baseline direct: whole "
      "rows of scores are needed\n"
      "weights refused baseline split: it returns no weights\n"
      "weights refused baseline short: it returns no weights, and reads no cache\n");
  const AttentionPlan dot = make_plan({}, shape_of(40), {.kernel = "baseline"});
  EXPECT_NE(explain(dot).find("\nweights: baseline tiled, baseline direct up to 8 queries\n"
                              "weights alone: baseline tiled rows, baseline rows up to 4 queries\n"
                              "losses of weights: baseline tiled rows, baseline rows up to 4 queries\n"),
            std::string::npos)
      << explain(dot);
  EXPECT_EQ(
      refusals(dot),
      "weights refused baseline split: it returns no weights\n"
      "weights refused baseline short: it returns no weights, and reads no cache\n"
      "weights alone refused baseline tiled, baseline additive, baseline direct: whole rows of scores are "
      "needed\n"
      "keys in a cache refused baseline short: it returns no weights, and reads no cache\n");
}

// A kernel that could run forward but not backward is named with its reason. What has no backward at all is
// not.
TEST(Candidates, ExplainNamesRefusalsOfBackward) {
  const AttentionSpec by_query{.mods = {RelativeKeyBias{4}}};
  const std::string lines = refusals(make_plan(by_query, shape_of(40), {.kernel = "baseline"}));
  EXPECT_TRUE(
      lines.starts_with("refused baseline short: it has mods\n"
                        "backward refused baseline short, baseline tiled, baseline additive, baseline "
                        "direct: whole rows of scores are needed\n"))
      << lines;
  // A reason that forward gives too is said once.
  const std::string once = refusals(make_plan({}, shape_of(40), {.kernel = "tiles"}));
  EXPECT_TRUE(once.starts_with("refused portable tiles: f32 at Precision::full\nweights refused ")) << once;
}

TEST(Candidates, ExplainNamesWhyNoSentencesAreRead) {
  const auto lines = [](const Mods& mods) {
    return refusals(make_plan({.mods = mods}, shape_of(40), {.kernel = "baseline"}));
  };
  EXPECT_TRUE(lines({}).starts_with("weights refused ")) << lines({});
  EXPECT_TRUE(lines({SoftCap{5}}).starts_with("refused baseline short: it has mods\n"))
      << lines({SoftCap{5}});
}

TEST(Candidates, ExplainNamesWhatReadsSharedKeysOnce) {
  AttentionShape shape = shape_of(40);
  const std::string line = "\nkeys in a cache that entries share: read once by baseline split\n";
  EXPECT_EQ(explain(make_plan({}, shape, {.kernel = "baseline"})).find(line),
            std::string::npos);  // one entry
  shape.batch = 2;
  EXPECT_NE(explain(make_plan({}, shape, {.kernel = "baseline"})).find(line), std::string::npos);
  // Whole rows are not computed in chunks that could be shared.
  EXPECT_EQ(explain(make_plan({.normalizer = Sparsemax{}}, shape, {.kernel = "baseline"})).find("share"),
            std::string::npos);
}

TEST(Candidates, ExplainNamesArguments) {
  const auto line = [](const AttentionSpec& spec, AttentionShape shape) {
    const std::string text = explain(make_plan(spec, shape, {.kernel = "baseline"}));
    const std::size_t begin = text.find("\narguments: ");
    return begin == std::string::npos ? "none"
                                      : text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  };
  EXPECT_EQ(line({}, shape_of(40)), "none");
  AttentionShape shape{.batch = 2, .num_query_heads = 4, .query_len = 40, .key_len = 600, .head_dim = 16};
  EXPECT_EQ(line({.mods = {SoftCap{5}, AlibiBias{}}, .normalizer = SoftmaxWithSink{}}, shape),
            "arguments: mods[1].slope [2 or 1, 4 or 1, 40 or 1, 600 or 1], normalizer.sink [4]");
  shape.hidden = 8;
  EXPECT_EQ(line({.score = LowRankBilinear{}}, shape), "arguments: score.W [8, 16], score.U [8, 16]");
}

// What runs if keys are in a cache is said where it differs.
TEST(Candidates, ExplainNamesTheKernelsOfACache) {
  const auto line = [](const AttentionSpec& spec, const PlanOptions& options) {
    AttentionShape shape = shape_of(40);
    shape.hidden = 16;
    const std::string text = explain(make_plan(spec, shape, options));
    const std::size_t begin = text.find("\nkeys in a cache: ");
    return begin == std::string::npos ? "none"
                                      : text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  };
  EXPECT_EQ(line({.mods = {SoftCap{5}}}, {.kernel = "baseline"}), "none");
  EXPECT_EQ(line({}, {.kernel = "baseline"}),
            "keys in a cache: baseline tiled, baseline split up to 8 queries");
  EXPECT_EQ(line({}, {.dtype = DType::bf16, .kernel = "tiles"}),
            "keys in a cache: portable tiles, baseline split up to 32 queries; with weights baseline tiled, "
            "baseline direct up to 32 queries");
  EXPECT_EQ(line({}, {.dtype = DType::f16, .kernel = "tiles"}),
            "keys in a cache: baseline tiled, baseline split up to 32 queries; with weights baseline tiled, "
            "baseline direct up to 32 queries");
  const std::string half = refusals(make_plan({}, shape_of(40), {.dtype = DType::f16, .kernel = "tiles"}));
  EXPECT_NE(half.find("\nkeys in a cache refused portable tiles: it reads caches of bf16 alone\n"),
            std::string::npos)
      << half;
  EXPECT_EQ(
      line({.score = Additive{}}, {.kernel = "baseline"}),
      "keys in a cache: baseline additive, baseline direct up to 8 queries; with weights baseline additive, "
      "baseline direct up to 8 queries");
}

// An exponential a row pays from four queries a key on; query heads that share a head of keys count too.
TEST(Candidates, AdditiveScoresTakeAnExponentialForFourQueriesAKey) {
  const auto kernels = [](std::int64_t heads, std::int64_t queries) {
    AttentionShape shape{.num_query_heads = heads, .query_len = queries, .key_len = 600, .head_dim = 16};
    shape.hidden = 16;
    return first_line(make_plan({.score = Additive{}}, shape, {.kernel = "baseline"}));
  };
  EXPECT_EQ(kernels(1, 3), "baseline direct; backward baseline direct");
  EXPECT_EQ(kernels(1, 4),
            "baseline additive, baseline direct up to 3 queries; backward baseline additive, "
            "baseline direct up to 3 queries");
  EXPECT_EQ(kernels(2, 4),
            "baseline additive, baseline direct up to 1 query; backward baseline additive, "
            "baseline direct up to 1 query");
  EXPECT_EQ(kernels(4, 1), "baseline additive; backward baseline additive");
}

// Calls that read 16-bit operands without widening. The case table has none, because it asks for weights.
TEST(Candidates, Read16BitOperandsWhereForced) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int64_t queries : {1, 7, 70}) {
      const AttentionShape shape{.batch = 2,
                                 .num_query_heads = 4,
                                 .num_kv_heads = 2,
                                 .query_len = queries,
                                 .key_len = 333,
                                 .head_dim = 24,
                                 .value_dim = 40};
      const Tensor q = random_tensor(dtype, {2, 4, queries, 24}, 1),
                   k = random_tensor(dtype, {2, 2, 333, 24}, 2), v = random_tensor(dtype, {2, 2, 333, 40}, 3),
                   out(dtype, {2, 4, queries, 40}), exact(DType::f64, {2, 4, queries, 40});
      const Tensor wide[] = {in_double(q), in_double(k), in_double(v)};
      attend(make_plan({.mask = Causal{}}, shape, {.dtype = DType::f64, .kernel = "reference"}), wide[0],
             wide[1], wide[2], exact);
      // Rounding of the output, and for bf16 of the weights too; for f32, sums of some hundred terms.
      const double bound = dtype == DType::bf16  ? 0x1p-8 * std::sqrt(2.0 / 3.0)
                           : dtype == DType::f16 ? 0x1p-11
                                                 : 64 * 0x1p-23;
      int ran = 0;
      for (const KernelInfo& info : list_kernels()) {
        if (!info.available) continue;
        try {
          const AttentionPlan plan =
              make_plan({.mask = Causal{}}, shape,
                        {.dtype = dtype, .precision = Precision::higher, .kernel = info.name});
          attend(plan, q, k, v, out);
        } catch (const InvalidArgument&) {
          continue;
        }
        ++ran;
        EXPECT_LT(relative_distance(out, exact), bound)
            << info.name << " " << to_string(dtype) << ", " << queries << " queries";
      }
      EXPECT_GE(ran, 6);  // the five of one instruction set and the reference
    }
  }
}

}  // namespace
}  // namespace fovea::testing
