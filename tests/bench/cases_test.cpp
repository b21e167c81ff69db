// The rows of the benchmark: pairs counted one by one, and limits for given rates.
#include "bench/cases.h"

#include <gtest/gtest.h>

#include <set>

#include "bench/report.h"
#include "fovea/attention/expression.h"
#include "fovea/attention/mask_definition.h"

namespace fovea::bench {
namespace {

TEST(BenchCases, VisiblePairsAreThoseThatTheMaskAllows) {
  constexpr std::int64_t query_len = 7, key_len = 13, offset = key_len - query_len;
  for (const char* text :
       {"everything", "causal", "window(3,2)", "documents(0,4,9,13)", "causal & window(5,0)", "~causal"}) {
    const Mask mask = parse_mask(text);
    std::int64_t pairs = 0;
    for (std::int64_t query = offset; query < key_len; ++query) {
      const QueryBlock block{.query_begin = query, .query_end = query + 1, .key_len = key_len};
      for (std::int64_t key = 0; key < key_len; ++key)
        pairs += mask.node().allows(Site::at(0, 0, query, key), block);
    }
    EXPECT_EQ(visible_pairs(mask, query_len, key_len), pairs) << text;
  }
}

// One rate is 1 and all others 1e12, so the part that it limits takes the longest.
TEST(BenchCases, TheLimitIsTheSlowestPart) {
  const BenchCase c{.group = "odd", .shape = {1, 2, 2, 16, 32, 8}};
  const Work work = work_of(c);
  EXPECT_EQ(work.pairs, 2 * 16 * 32);
  EXPECT_EQ(work.flops, work.pairs * 2 * 2 * 8);
  EXPECT_EQ(work.bytes, 4 * 2 * (2 * 16 + 2 * 32) * 8);
  const auto bound = [&](Probe slow, const BenchCase& row) {
    Rates rates;
    for (double& rate : rates.of) rate = 1e12;
    rates.of[static_cast<std::size_t>(slow)] = 1;
    const Work its_work = work_of(row);
    const Limit limit = limit_of(row, its_work, rates);
    EXPECT_EQ(limit.seconds(), std::max({limit.product, limit.exponential, limit.bytes}));
    return std::pair(std::string(limit.bound()), limit.seconds());
  };
  EXPECT_EQ(bound(Probe::fma_f32, c), std::pair(std::string("product"), work.flops));
  EXPECT_EQ(bound(Probe::exponential, c), std::pair(std::string("exponential"), work.pairs));
  EXPECT_EQ(bound(Probe::read, c), std::pair(std::string("bytes"), work.bytes));
  BenchCase additive = c;
  additive.score = "additive";
  EXPECT_EQ(bound(Probe::tanh, additive), std::pair(std::string("tanh"), work.pairs * 8));
}

TEST(BenchCases, NamesAreDistinctAndChooseRows) {
  for (const CaseSet set : {CaseSet::all, CaseSet::quick}) {
    std::set<std::string> names;
    for (const BenchCase& c : bench_cases(set)) EXPECT_TRUE(names.insert(c.name()).second) << c.name();
    EXPECT_EQ(cases_named(set, {}).size(), names.size());
    for (const BenchCase& c : cases_named(set, {"decode f32", "small"}))
      EXPECT_TRUE(c.group == "small" || (c.group == "decode" && c.dtype == DType::f32)) << c.name();
    EXPECT_TRUE(cases_named(set, {"no such row"}).empty());
  }
}

}  // namespace
}  // namespace fovea::bench
