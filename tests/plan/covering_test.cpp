// The generator of covering arrays, against brute force, and the table that it makes.
#include "plan/covering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/case_table.h"

namespace fovea::testing {
namespace {

using Pair = std::array<int, 4>;

std::set<Pair> pairs_of(const std::vector<CoveringRow>& rows) {
  std::set<Pair> pairs;
  for (const CoveringRow& row : rows) {
    for (int a = 0; a < static_cast<int>(row.size()); ++a) {
      for (int b = a + 1; b < static_cast<int>(row.size()); ++b) pairs.insert({a, row[a], b, row[b]});
    }
  }
  return pairs;
}

// Every possible row, without those that contain an incompatible pair.
std::vector<CoveringRow> every_row(const std::vector<int>& levels, const Compatible& compatible) {
  std::vector<CoveringRow> rows{{}};
  for (int factor = 0; factor < static_cast<int>(levels.size()); ++factor) {
    std::vector<CoveringRow> longer;
    for (const CoveringRow& row : rows) {
      for (int level = 0; level < levels[factor]; ++level) {
        bool fits = true;
        for (int other = 0; other < factor; ++other)
          fits = fits && (!compatible || compatible(other, row[other], factor, level));
        if (!fits) continue;
        longer.push_back(row);
        longer.back().push_back(level);
      }
    }
    rows = longer;
  }
  return rows;
}

TEST(Covering, HoldsEveryPairInFewRows) {
  for (std::vector<int> levels : {std::vector<int>{3, 4},
                                  {2, 2, 2, 2, 2},
                                  {5, 3, 1, 4},
                                  {7, 2, 6, 3, 3},
                                  {4, 4, 4, 4, 4, 4},
                                  {1, 1},
                                  {15, 5, 11, 15, 3, 4, 4, 2, 2, 3}}) {
    std::set<Pair> want;
    for (int a = 0; a < static_cast<int>(levels.size()); ++a) {
      for (int b = a + 1; b < static_cast<int>(levels.size()); ++b) {
        for (int i = 0; i < levels[a]; ++i) {
          for (int j = 0; j < levels[b]; ++j) want.insert({a, i, b, j});
        }
      }
    }
    const std::vector<CoveringRow> rows = covering_array(levels);
    EXPECT_EQ(pairs_of(rows), want);
    std::sort(levels.rbegin(), levels.rend());
    EXPECT_LE(static_cast<int>(rows.size()), 2 * levels[0] * levels[1]);
    EXPECT_EQ(covering_array(levels), covering_array(levels)) << "not a function of its arguments";
  }
}

// Exactly the pairs that no row can contain are left out, also pairs that only a third factor makes
// impossible.
TEST(Covering, LeavesOutImpossiblePairsOnly) {
  const std::vector<int> levels{4, 3, 5, 2, 3};
  const Compatible rules[] = {
      [](int a, int i, int b, int j) { return !(a == 0 && i == 2 && b == 2 && j > 1); },
      [](int a, int i, int b, int j) { return (a * 7 + i * 5 + b * 3 + j * 11) % 6 != 0; },
      // Levels 0 of factors 0 and 1 leave no level for factor 3.
      [](int a, int i, int b, int j) {
        return !(b == 3 && i == 0 && ((a == 0 && j == 0) || (a == 1 && j == 1)));
      }};
  for (const Compatible& compatible : rules) {
    const std::vector<CoveringRow> all = every_row(levels, compatible),
                                   rows = covering_array(levels, compatible);
    ASSERT_FALSE(all.empty());
    EXPECT_LT(rows.size(), all.size());
    EXPECT_EQ(pairs_of(rows), pairs_of(all));
    for (const CoveringRow& row : rows) EXPECT_TRUE(std::find(all.begin(), all.end(), row) != all.end());
  }
}

TEST(CaseTable, NamesTellCasesApart) {
  std::set<std::string> levels;
  for (const Factor& factor : case_factors(Shapes::all)) {
    for (const Level& level : factor.levels) EXPECT_TRUE(levels.insert(level.name).second) << level.name;
  }
  for (const auto* table : {&case_table(), &full_case_table()}) {
    std::set<std::string> names;
    for (const Case& c : *table) EXPECT_TRUE(names.insert(c.name).second) << c.name;
  }
  EXPECT_FALSE(chosen_case_table().empty()) << "FOVEA_CASE is no part of any name";
}

TEST(CaseTable, HoldsEveryCombination) {
  if (std::getenv("FOVEA_CASE") || cases_wanted("tenth")) GTEST_SKIP() << "the environment leaves cases out";
  std::size_t combinations = 1;
  const std::vector<Factor> factors = case_factors(Shapes::all);
  for (std::size_t f = 1; f < 7; ++f) combinations *= factors[f].levels.size();
  bool rules = false;
  for (const Factor& factor : factors) {
    for (const Level& level : factor.levels) rules = rules || level.allows;
  }
  if (!rules) EXPECT_EQ(full_case_table().size(), combinations);
  EXPECT_LE(full_case_table().size(), combinations);
  std::printf("%zu cases pairwise, %zu in full\n", case_table().size(), full_case_table().size());
}

}  // namespace
}  // namespace fovea::testing
