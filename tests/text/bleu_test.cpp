#include "fovea/text/bleu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fovea/core/error.h"

namespace fovea::text {
namespace {

// tests/text/sacrebleu_oracle.py wrote the cases with the numbers of the sacrebleu package.
TEST(Bleu, AgreesWithSacrebleu) {
  std::ifstream stream(std::string(FOVEA_TEST_DATA) + "/bleu_cases.json");
  const auto file = nlohmann::json::parse(stream);
  ASSERT_GT(file["cases"].size(), 50u);
  for (const auto& expected : file["cases"]) {
    const BleuOptions options{
        .tokenizer = expected["tokenize"] == "13a" ? BleuTokenizer::mteval_13a : BleuTokenizer::none,
        .letter_case = expected["lowercase"].get<bool>() ? LetterCase::lower : LetterCase::mixed};
    const auto hypotheses = expected["hypotheses"].get<std::vector<std::string>>();
    const auto references = expected["references"].get<std::vector<std::string>>();
    SCOPED_TRACE(nlohmann::json(hypotheses).dump().substr(0, 300) + " " +
                 expected["tokenize"].get<std::string>());
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      std::string tokens;
      for (const auto& token : expected["tokens"][i]) {
        tokens += (tokens.empty() ? "" : " ") + token.get<std::string>();
      }
      EXPECT_EQ(bleu_tokenize(hypotheses[i], options), tokens);
    }
    const BleuScore score = bleu(hypotheses, references, options);
    EXPECT_EQ(score.sys_len, expected["sys_len"].get<std::int64_t>());
    EXPECT_EQ(score.ref_len, expected["ref_len"].get<std::int64_t>());
    // Both sides take a few operations in double; a relative 1e-12 allows hundreds of roundings.
    const auto near = [](double a, double b) {
      return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b));
    };
    EXPECT_TRUE(near(score.score, expected["score"].get<double>()))
        << score.score << " " << expected["score"];
    EXPECT_TRUE(near(score.brevity_penalty, expected["brevity_penalty"].get<double>()));
    for (std::size_t n = 0; n < 4; ++n) {
      EXPECT_EQ(score.correct[n], expected["correct"][n].get<std::int64_t>());
      EXPECT_EQ(score.total[n], expected["total"][n].get<std::int64_t>());
      EXPECT_TRUE(near(score.precisions[n], expected["precisions"][n].get<double>()));
    }
    EXPECT_EQ(score.to_string(), expected["line"].get<std::string>());
    EXPECT_TRUE(score.signature().starts_with(expected["signature"].get<std::string>())) << score.signature();
  }
}

TEST(Bleu, PerfectTranslationScoresOneHundred) {
  const std::vector<std::string> lines{"Le chat était assis sur le tapis .", "Oui , il dort dehors ."};
  EXPECT_NEAR(bleu(lines, lines).score, 100, 1e-10);
}

TEST(Bleu, RefusesDifferentNumbersOfLines) {
  const std::vector<std::string> one{"a"}, two{"a", "b"}, none;
  EXPECT_THROW(bleu(one, two), InvalidArgument);
  EXPECT_THROW(bleu(none, none), InvalidArgument);
}

}  // namespace
}  // namespace fovea::text
