// The text of scores, mods and normalisers. mask_test.cpp and rope_test.cpp test that of masks and rotations.
#include "fovea/attention/expression.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

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
  std::ifstream stream(std::string(FOVEA_TEST_DATA) + "/../../include/fovea/attention/expression.h");
  const std::string header((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const auto expect = [&](const char* name) {
    EXPECT_NE(header.find("'" + std::string(name) + "'"), std::string::npos) << name;
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
  const Score scores[] = {ScaledDot{}, Dot{},      Bilinear{}, Additive{}, LowRankBilinear{},
                          Location{},  Coverage{}, Cosine{},   QkNorm{}};
  static_assert(std::size(scores) == std::variant_size_v<Score>);
  for (const Score& score : scores) EXPECT_EQ(parse_score(to_string(score)), score);
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

TEST(Expression, EveryNormalizerIsReadBack) {
  PhiloxStream random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const double number = trial == 0 ? 0.0 : 4.0 * random.next_uniform() - 2.0;
    const Normalizer all[] = {Softmax{},        SoftmaxWithSink{},    Sigmoid{number},
                              Sparsemax{},      Entmax{number},       Entmax{},
                              HardArgmax{},     HardSample{},         GumbelSample{number},
                              LinearChain{},    GumbelSample{1e-300}, Sigmoid{1e300},
                              ScalableSoftmax{}};
    for (const Normalizer& normalizer : all)
      EXPECT_EQ(parse_normalizer(to_string(normalizer)), normalizer) << to_string(normalizer);
  }
  for (const char* text : {"softmax", "sink", "scalable", "sigmoid", "sigmoid(-4)", "sparsemax", "entmax",
                           "entmax(1.25)", "argmax", "sample", "gumbel", "gumbel(0.5)", "chain"})
    EXPECT_EQ(to_string(parse_normalizer(text)), text);
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

TEST(Expression, EveryModIsReadBack) {
  std::size_t names = 0;
  std::string_view last;
  for (const char* text :
       {"softcap(50)", "softcap(0.1)", "softcap(1e+30)", "temperature(0.5)", "temperature", "alibi", "symmetric-alibi", "bias",
        "relative(32,128,causal)", "relative(8,20,bidirectional)", "relative-key(128)", "relative-key(0)",
        "forget", "local(10)", "local(0)", "gaussian(2.5)"}) {
    EXPECT_EQ(to_string(parse_mod(text)), text);
    const std::string_view name = std::string_view(text).substr(0, std::string_view(text).find('('));
    names += name != last;
    last = name;
  }
  EXPECT_EQ(names, mod_names().size());
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
