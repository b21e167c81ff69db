// The text of scores, mods and normalisers. mask_test.cpp and rope_test.cpp test that of masks and rotations.
#include "fovea/attention/expression.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "attention/alternatives.h"
#include "attention/mask_names.h"
#include "attention/names.h"
#include "fovea/attention/mod_node.h"
#include "fovea/core/philox.h"

namespace fovea {
namespace {

struct Mistake {
  const char* text;
  std::size_t column;
  const char* expected;  // a part of the message
};

// The grammar in the comment of the header has every name that its parser knows.
TEST(Expression, TheHeaderListsEveryName) {
  std::ifstream stream(FOVEA_TEST_DATA "/../../include/fovea/attention/expression.h");
  const std::string header((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const auto expect = [&](const std::string& name) {
    EXPECT_NE(header.find("'" + name + "'"), std::string::npos) << name;
  };
  for (const ModName& row : mod_names()) expect(row.name);
  for (const NormalizerName& row : normalizer_names()) expect(row.name);
  for (const MaskName& row : mask_names()) expect(row.name);
}

template <class Parse>
void expect_mistakes(const char* function, Parse parse, std::initializer_list<Mistake> mistakes) {
  for (const Mistake& mistake : mistakes) {
    try {
      parse(mistake.text);
      ADD_FAILURE() << mistake.text;
    } catch (const ExpressionError& error) {
      EXPECT_EQ(error.column(), mistake.column) << mistake.text << ": " << error.what();
      EXPECT_NE(error.expected().find(mistake.expected), std::string::npos)
          << mistake.text << ": " << error.what();
      EXPECT_EQ(error.function(), function);
    }
  }
}

TEST(Expression, EveryScoreIsReadBack) {
  for (const Score& score : testing::alternatives<Score>()) EXPECT_EQ(parse_score(to_string(score)), score);
  EXPECT_EQ(to_string(Score(LowRankBilinear{})), "low-rank");
  EXPECT_EQ(parse_score(" scaled-dot "), Score(ScaledDot{}));
  expect_mistakes("parse_score", parse_score,
                  {{"", 1, "low-rank"},
                   {"scaled", 1, "scaled-dot"},
                   {" low-rnk", 2, "coverage"},
                   {"dot product", 5, "the end"},
                   {"dot(2)", 4, "the end"},
                   {"dot-", 4, "the end"}});
  try {
    parse_score("low-rnk");
  } catch (const ExpressionError& error) {
    EXPECT_EQ(error.got(), "'low-rnk'");
  }
}

// The normaliser with another number; the same where it has none.
Normalizer with_number(const Normalizer& normalizer, double number) {
  return std::visit(
      [&]<class N>(N changed) -> Normalizer {
        if constexpr (requires { N::number; }) changed.*N::number = number;
        return changed;
      },
      normalizer);
}

TEST(Expression, EveryNormalizerIsReadBack) {
  PhiloxStream random(5);
  for (const Normalizer& plain : testing::alternatives<Normalizer>()) {
    for (int trial = 0; trial < 200; ++trial) {
      const double numbers[] = {0.0, 1e-300, 1e300, 4.0 * random.next_uniform() - 2.0};
      const Normalizer normalizer = with_number(plain, trial < 3 ? numbers[trial] : numbers[3]);
      EXPECT_EQ(parse_normalizer(to_string(normalizer)), normalizer) << to_string(normalizer);
    }
    // The text is the name alone where the number is the default one, or where there is none.
    const std::string name = std::visit([]<class N>(const N&) { return std::string(N::name); }, plain);
    EXPECT_EQ(to_string(plain), name);
    EXPECT_EQ(parse_normalizer(name), plain);
    const Normalizer other = with_number(plain, -4.25);
    EXPECT_EQ(to_string(other), other == plain ? name : name + "(-4.25)");
  }
  EXPECT_EQ(to_string(parse_normalizer(" entmax ( 1.50 ) ")), "entmax");
  expect_mistakes("parse_normalizer", parse_normalizer,
                  {{"", 1, "sparsemax"},
                   {"softmax(1)", 8, "the end"},
                   {"entmax(", 8, "an alpha"},
                   {"entmax(x)", 8, "an alpha"},
                   {"entmax(1.5", 11, "')'"},
                   {"gumbel()", 8, "a temperature"},
                   {"sparsmax", 1, "a normaliser (softmax, sink"},
                   {"sigmoid-4", 8, "the end"},
                   {"chain chain", 7, "the end"}});
}

// "relative(32,64,causal)": a text of the row with numbers that its mod takes.
std::string text_of(const ModName& row, const char* direction) {
  const char* counts[] = {"32", "64", "128"};
  std::string text;
  for (std::size_t n = 0; n < row.numbers.size() && row.numbers[n].what; ++n) {
    const ModNumber::Kind kind = row.numbers[n].kind;
    text += n == 0 ? "(" : ",";
    text += kind == ModNumber::Kind::real ? "2.5" : kind == ModNumber::Kind::count ? counts[n] : direction;
  }
  return row.name + text + ")";
}

TEST(Expression, EveryModIsReadBack) {
  for (const ModName& row : mod_names()) {
    SCOPED_TRACE(row.name);
    ASSERT_TRUE(row.make || row.bare);
    if (row.bare) {
      EXPECT_EQ(to_string(parse_mod(row.name)), row.name);
      EXPECT_EQ(to_string(row.bare()), row.name);
    }
    EXPECT_EQ(row.make == nullptr, row.numbers.front().what == nullptr);
    if (!row.make) continue;
    for (const char* direction : {"causal", "bidirectional"})
      EXPECT_EQ(to_string(parse_mod(text_of(row, direction))), text_of(row, direction));
  }
  for (const char* text :
       {"softcap(0.1)", "softcap(1e+30)", "relative(8,20,bidirectional)", "relative-key(0)", "local(0)"})
    EXPECT_EQ(to_string(parse_mod(text)), text);
  EXPECT_EQ(to_string(parse_mod(" softcap ( 2.50 ) ")), "softcap(2.5)");
  EXPECT_TRUE(parse_mod("temperature(2)").node().arguments().empty());
  EXPECT_EQ(parse_mod("temperature").node().arguments().size(), 1u);
  EXPECT_EQ(parse_mod("relative(6,40,causal)").node().entries(), 6);
  EXPECT_EQ(parse_mod("relative-key(3)").node().entries(), 7);
  expect_mistakes("parse_mod", parse_mod,
                  {{"", 1, "a mod (softcap, temperature"},
                   {"softcap", 8, "'('"},
                   {"softcap(x)", 9, "a cap"},
                   {"softcap(0)", 1, "cap to be"},
                   {"softcap(inf)", 1, "cap to be"},
                   {"temperature()", 13, "a temperature"},
                   {"temperature(-1)", 1, "value to be"},
                   {"alibi(2)", 6, "the end"},
                   {"relative(8,20)", 14, "','"},
                   {"relative(8,20,both)", 15, "'bidirectional'"},
                   {"relative(8,4,causal)", 1, "max_distance to be"},
                   {"relative(-8,20,causal)", 10, "a number of buckets"},
                   {"relative(8,9223372036854775806,causal)", 1, "max_distance to be"},
                   {"relative-keys(2)", 1, "relative-key"},
                   {"relative-key(2000000)", 1, "max_distance to be"},
                   {"local(-1)", 1, "reach to be"},
                   {"gaussian(0)", 1, "deviation to be"},
                   {"gaussian(1,2)", 11, "')'"},
                   {"soft", 1, "softcap"}});
}

TEST(Expression, NoTextCrashesTheOtherParsers) {
  PhiloxStream random(6);
  std::vector<std::string> pieces = {"(",   ")",   ",",   "-",      " ",    "1",
                                     "1e9", "nan", "inf", "causal", "\xc3", "\t"};
  for (const ScoreName& row : score_names()) pieces.push_back(row.name);
  for (const ModName& row : mod_names()) pieces.push_back(row.name);
  for (const NormalizerName& row : normalizer_names()) pieces.push_back(row.name);
  const auto try_all = [](const std::string& text) {
    const auto read = [&](auto parse) {
      try {
        const std::string printed = to_string(parse(text));
        EXPECT_EQ(to_string(parse(printed)), printed) << text;
        return true;
      } catch (const ExpressionError& error) {
        EXPECT_LE(error.column(), text.size() + 1);
        return false;
      }
    };
    return int{read(parse_score)} + int{read(parse_mod)} + int{read(parse_normalizer)};
  };
  int understood = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text;
    for (std::uint32_t n = random.next_below(8); n > 0; --n) {
      if (random.next_below(3) > 0)
        text += pieces[random.next_below(static_cast<std::uint32_t>(pieces.size()))];
      else
        text += static_cast<char>(random.next_below(256));
    }
    understood += try_all(text);
  }
  EXPECT_GT(understood, 100);
  try_all(std::string(100000, '('));
  try_all("softcap(" + std::string(100000, '9') + ")");
}

}  // namespace
}  // namespace fovea
