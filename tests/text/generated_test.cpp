#include "fovea/text/generated.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "fovea/core/error.h"
#include "fovea/text/alignment.h"

namespace fovea::text {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

const ParallelCorpus& training() {
  static const ParallelCorpus corpus = generate_corpus({.seed = 11, .count = 30000});
  return corpus;
}

std::set<std::string> types(const ParallelCorpus& corpus, Side side) {
  std::set<std::string> result;
  for (const std::string& line : lines_of(corpus, side)) {
    for (std::string& word : words_of(line)) result.insert(std::move(word));
  }
  return result;
}

TEST(GeneratedCorpus, AlignmentsStayInsideTheSentencesAndCoverThem) {
  for (std::size_t i = 0; i < training().size(); ++i) {
    const auto& [source, target] = training().pairs[i];
    const std::size_t source_len = words_of(source).size(), target_len = words_of(target).size();
    ASSERT_GE(source_len, 3u);
    std::set<int> aligned;
    for (const AlignmentLink& link : training().alignments[i]) {
      ASSERT_TRUE(link.source >= 0 && link.source < static_cast<int>(source_len)) << source;
      ASSERT_TRUE(link.target >= 0 && link.target < static_cast<int>(target_len)) << target;
      aligned.insert(link.target);
    }
    ASSERT_EQ(aligned.size(), target_len) << "every French word comes from somewhere: " << target;
  }
}

// Content words are aligned with a form of their own translation, wherever it is.
TEST(GeneratedCorpus, ContentWordsAreAlignedWithTheirCounterparts) {
  const std::map<std::string, std::set<std::string>> dictionary{
      {"cat", {"chat"}},
      {"mice", {"souris"}},
      {"house", {"maison"}},
      {"red", {"rouge", "rouges"}},
      {"white", {"blanc", "blanche", "blancs", "blanches"}},
      {"European", {"européen", "européenne"}},
      {"often", {"souvent"}},
      {"not", {"ne", "n'", "pas"}},
      {"never", {"ne", "n'", "jamais"}},
      {"because", {"parce", "que", "qu'"}},
      {"August", {"août"}},
      {"1992", {"1992"}},
      {"hotel", {"hôtel"}}};
  std::set<std::string> seen;
  for (std::size_t i = 0; i < training().size(); ++i) {
    const auto source = words_of(training().pairs[i].source), target = words_of(training().pairs[i].target);
    for (const AlignmentLink& link : training().alignments[i]) {
      const auto entry = dictionary.find(source[static_cast<std::size_t>(link.source)]);
      if (entry == dictionary.end()) continue;
      seen.insert(entry->first);
      ASSERT_TRUE(entry->second.contains(target[static_cast<std::size_t>(link.target)]))
          << training().pairs[i].source << "\n"
          << training().pairs[i].target;
    }
  }
  EXPECT_EQ(seen.size(), dictionary.size());
}

TEST(GeneratedCorpus, TranslationIsAFunctionOfTheSource) {
  // Other seeds produce many of the same short sentences by other paths through the grammar.
  std::map<std::string, std::string> translation;
  std::int64_t met_again = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const ParallelCorpus corpus = generate_corpus({.seed = seed, .count = 10000, .max_words = 14});
    for (const auto& [source, target] : corpus.pairs) {
      const auto [entry, fresh] = translation.emplace(source, target);
      met_again += !fresh;
      ASSERT_EQ(entry->second, target) << source;
    }
  }
  EXPECT_GT(met_again, 1000);
}

TEST(GeneratedCorpus, EqualOptionsGiveEqualCorporaAndPrefixes) {
  const ParallelCorpus some = generate_corpus({.seed = 5, .count = 500}),
                       more = generate_corpus({.seed = 5, .count = 600});
  for (std::size_t i = 0; i < some.size(); ++i) {
    ASSERT_EQ(some.pairs[i], more.pairs[i]);
    ASSERT_EQ(some.alignments[i], more.alignments[i]);
  }
  EXPECT_NE(generate_corpus({.seed = 6, .count = 500}).pairs, some.pairs);
}

TEST(GeneratedCorpus, SplitsShareNoSourceAndNoSentenceComesTwice) {
  std::set<std::string> seen;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    for (const std::uint64_t seed : {1u, 2u}) {
      std::set<std::string> mine;
      const ParallelCorpus corpus =
          generate_corpus({.seed = seed, .count = 1500, .max_words = 30, .split = split});
      for (const auto& pair : corpus.pairs) {
        EXPECT_EQ(split_of(pair.source), split);
        EXPECT_TRUE(mine.insert(pair.source).second) << pair.source;
        EXPECT_FALSE(split != Split::train && seed == 1 && seen.contains(pair.source)) << pair.source;
      }
      seen.merge(mine);
    }
  }
}

TEST(GeneratedCorpus, LengthsAreThoseOfTheOptions) {
  for (const auto& [low, high] : {std::pair{3, 8}, {40, 60}, {20, 20}}) {
    std::map<std::size_t, int> count;
    const ParallelCorpus corpus = generate_corpus(
        {.seed = 2, .count = 400, .min_words = low, .max_words = high, .lengths = LengthShape::uniform});
    for (const auto& pair : corpus.pairs) {
      const std::size_t length = words_of(pair.source).size();
      ASSERT_TRUE(length >= static_cast<std::size_t>(low) && length <= static_cast<std::size_t>(high))
          << pair.source;
      ++count[length];
    }
    EXPECT_EQ(count.size(), static_cast<std::size_t>(high - low + 1)) << "every length occurs";
  }
}

TEST(GeneratedCorpus, LongSentencesAreMadeOfManyDifferentWords) {
  const ParallelCorpus corpus = generate_corpus({.seed = 2, .count = 300, .min_words = 40, .max_words = 60});
  double different = 0, all = 0;
  for (const auto& pair : corpus.pairs) {
    const auto words = words_of(pair.source);
    all += static_cast<double>(words.size());
    different += static_cast<double>(std::set<std::string>(words.begin(), words.end()).size());
  }
  EXPECT_GT(different / all, 0.6);
}

TEST(GeneratedCorpus, VocabularyIsModest) {
  EXPECT_GT(types(training(), Side::source).size(), 250u);
  EXPECT_LT(types(training(), Side::source).size(), 400u);
  EXPECT_LT(types(training(), Side::target).size(), 650u);
}

TEST(GeneratedCorpus, HeldOutSentencesAreThoseOfTheDemo) {
  const ParallelCorpus held_out = held_out_sentences();
  ASSERT_EQ(held_out.size(), 2u);
  EXPECT_EQ(held_out.pairs[0],
            (SentencePair{"The cat sat on the mat .", "Le chat était assis sur le tapis ."}));
  EXPECT_EQ(to_pharaoh(held_out.alignments[0]), "0-0 1-1 2-2 2-3 3-4 4-5 5-6 6-7");
  EXPECT_EQ(held_out.pairs[1],
            (SentencePair{"The agreement on the European Economic Area was signed in August 1992 .",
                          "L' accord sur la zone économique européenne a été signé en août 1992 ."}));
  EXPECT_EQ(to_pharaoh(held_out.alignments[1]),
            "0-0 1-1 2-2 3-3 4-6 5-5 6-4 7-7 7-8 8-9 9-10 10-11 11-12 12-13");
}

TEST(GeneratedCorpus, HeldOutWordsOccurInTrainingButTheSentencesNever) {
  const auto source_types = types(training(), Side::source), target_types = types(training(), Side::target);
  for (const auto& [source, target] : held_out_sentences().pairs) {
    for (const std::string& word : words_of(source)) EXPECT_TRUE(source_types.contains(word)) << word;
    for (const std::string& word : words_of(target)) EXPECT_TRUE(target_types.contains(word)) << word;
  }
  bool area = false;
  for (const auto& pair : training().pairs) {
    EXPECT_EQ(pair.source.find("he cat sat on the mat"), std::string::npos) << pair.source;
    EXPECT_EQ(pair.source.find("European Economic Area was signed in August 1992"), std::string::npos);
    area = area || pair.source.find("European Economic") != std::string::npos;
  }
  EXPECT_TRUE(area);
}

TEST(GeneratedCorpus, FrenchIsElidedAndContracted) {
  const std::set<std::string> never{"de le", "de les", "à le", "à les", "de des", "si il", "si ils"};
  const std::set<std::string> elided{"le", "la", "de", "que", "je", "ne", "me", "ma", "ce"};
  for (const auto& pair : training().pairs) {
    const auto words = words_of(pair.target);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      ASSERT_FALSE(never.contains(words[i] + " " + words[i + 1])) << pair.target;
      if (!elided.contains(words[i])) continue;
      for (const char* vowel : {"a", "e", "i", "o", "u", "h", "é", "ê"}) {
        ASSERT_FALSE(words[i + 1].starts_with(vowel)) << pair.target;
      }
    }
  }
}

TEST(GeneratedCorpus, DetokenizedTextTokenizesBack) {
  EXPECT_EQ(detokenize("L' accord a été signé , aujourd'hui ."), "L'accord a été signé, aujourd'hui.");
  for (const auto& [source, target] : training().pairs) {
    ASSERT_EQ(tokenize_generated(detokenize(source)), source);
    ASSERT_EQ(tokenize_generated(detokenize(target)), target);
  }
}

TEST(GeneratedCorpus, RefusesUnusableOptions) {
  EXPECT_THROW(generate_corpus({.count = -1}), InvalidArgument);
  EXPECT_THROW(generate_corpus({.count = 1, .min_words = 2}), InvalidArgument);
  EXPECT_THROW(generate_corpus({.count = 1, .max_words = 61}), InvalidArgument);
  EXPECT_THROW(generate_corpus({.count = 1, .min_words = 9, .max_words = 8}), InvalidArgument);
  EXPECT_THROW(generate_corpus({.count = 100000, .min_words = 3, .max_words = 3}), InvalidArgument);
  EXPECT_EQ(generate_corpus({.count = 0}).size(), 0u);
}

}  // namespace
}  // namespace fovea::text
