#include "fovea/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fovea/core/error.h"
#include "fovea/text/generated.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

Strings training_lines() {
  return lines_of(generate_corpus({.seed = 3, .count = 300, .max_words = 20}), Side::both);
}

TEST(WhitespaceTokenizer, OrdersByFrequencyThenBytes) {
  const auto tokenizer = WhitespaceTokenizer::build(Strings{"b a a", "c  b\ta"});
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_EQ(tokenizer->encode("a b c"), (Ids{4, 5, 6}));
  EXPECT_EQ(tokenizer->encode(" \t "), Ids{});
}

TEST(Lines, EndWithTheEndOfASentence) {
  const auto tokenizer = WhitespaceTokenizer::build(Strings{"a a b"});
  const std::pair<const char*, Ids> cases[] = {
      {"", {}}, {"a b", {4, 5}}, {"a\n", {4, kEosId}}, {"\na\n\nb a", {kEosId, 4, kEosId, kEosId, 5, 4}}};
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(encode_lines(*tokenizer, text), ids);
    EXPECT_EQ(decode_lines(*tokenizer, ids), text);
  }
  EXPECT_EQ(decode_lines(*tokenizer, Ids{4, kEosId, 5}, " / "), "a / b");
}

TEST(WhitespaceTokenizer, MinFrequencyAndMaxSize) {
  const Strings lines{"a a a b b c"};
  EXPECT_EQ(WhitespaceTokenizer::build(lines, {.min_frequency = 2})->encode("a b c"),
            (Ids{4, 5, kUnknownId}));
  EXPECT_EQ(WhitespaceTokenizer::build(lines, {.max_size = 5})->encode("a b c"),
            (Ids{4, kUnknownId, kUnknownId}));
  EXPECT_THROW(WhitespaceTokenizer::build(lines, {.max_size = 3}), InvalidArgument);
  EXPECT_THROW(WhitespaceTokenizer::build(lines, {.min_frequency = -1}), InvalidArgument);
}

TEST(WhitespaceTokenizer, JoinsSubwordsAndMergesThemIntoWords) {
  const auto tokenizer = WhitespaceTokenizer::build(Strings{"Haus@@ tür ist zu@@"});
  const Ids ids = tokenizer->encode("Haus@@ tür ist zu@@");
  EXPECT_EQ(tokenizer->decode(ids), "Haustür ist zu");
  Strings pieces = tokenizer->pieces(ids);
  pieces.push_back("</s>");
  EXPECT_EQ(tokenizer->word_of(pieces), (Ids{0, 0, 1, 2, 3}));
  EXPECT_EQ(tokenizer->words(pieces), (Strings{"Haustür", "ist", "zu", "</s>"}));
}

TEST(WhitespaceTokenizer, TextCannotSpellSpecialIds) {
  const auto tokenizer = WhitespaceTokenizer::build(Strings{"<s> a </s> <pad>"});
  EXPECT_EQ(tokenizer->encode("</s> a <pad> <s>"), (Ids{kUnknownId, 4, kUnknownId, kUnknownId}));
}

TEST(WhitespaceTokenizer, DecodeLeavesOutControlIds) {
  const auto tokenizer = WhitespaceTokenizer::build(Strings{"a b"});
  EXPECT_EQ(tokenizer->decode(Ids{kBosId, 4, kPadId, 5, kEosId, kPadId}), "a b");
  EXPECT_THROW(tokenizer->decode(Ids{6}), InvalidArgument);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), InvalidArgument);
}

TEST(WhitespaceTokenizer, RefusesLinesThatJsonCannotHold) {
  EXPECT_THROW(WhitespaceTokenizer::build(Strings{"a \xFF"}), InvalidArgument);
}

// GPT-2's folders have a vocab.json that is no list of words.
TEST(Tokenizer, ATokenizerOfAnotherLibraryIsNotTakenForOurs) {
  for (const char* name : {"tokenizer.json", "merges.txt"}) {
    const Scratch scratch;
    WhitespaceTokenizer::build(Strings{"a b"})->save(scratch.folder());
    EXPECT_NO_THROW(load_tokenizer(scratch.folder()));
    std::ofstream(std::filesystem::path(scratch.folder()) / name) << "{}";
    try {
      load_tokenizer(scratch.folder());
      ADD_FAILURE() << name;
    } catch (const FileError& error) {
      EXPECT_NE(error.file().find(name), std::string::npos) << error.what();
    }
  }
}

// The library throws an exception of its own for it.
TEST(SentencePieceTokenizer, AModelWithAnEmptyPieceIsRefused) {
  const auto good = SentencePieceTokenizer::train(training_lines(), {.vocabulary_size = 200})->serialized();
  const std::string empty("\x0A\x07\x0A\x00\x15\x00\x00\x00\x00", 9);
  EXPECT_THROW(SentencePieceTokenizer::from_bytes(good + empty, "m"), FileError);
}

TEST(Tokenizer, KnowsTheBytesOfEachId) {
  const auto words = WhitespaceTokenizer::build(Strings{"lo@@ wer a"});
  const Encoding of_words = words->encoding(" lo@@  wer b");
  EXPECT_EQ(of_words.ids, words->encode("lo@@ wer b"));
  EXPECT_EQ(of_words.offsets, (std::vector<ByteRange>{{1, 5}, {7, 10}, {11, 12}}));
  EXPECT_EQ(of_words.words, (Ids{0, 0, 1}));
  EXPECT_THROW(words->encoding("\xFF"), InvalidArgument);
  const auto pieces = SentencePieceTokenizer::train(training_lines(), {.vocabulary_size = 200});
  const Strings lines = training_lines();
  const std::string line = "  " + lines[0] + " Ω ";
  const Encoding of_pieces = pieces->encoding(line);
  EXPECT_EQ(of_pieces.ids, pieces->encode(line));
  std::string text;
  for (const auto& [begin, end] : of_pieces.offsets) text += line.substr(begin, end - begin);
  const auto without_blanks = [](std::string from) {
    std::erase(from, ' ');
    return from;
  };
  EXPECT_EQ(without_blanks(text), without_blanks(line));
  EXPECT_EQ(of_pieces.words.back(), std::count(lines[0].begin(), lines[0].end(), ' ') + 1);
}

TEST(Tokenizer, SavedAndLoadedIsTheSame) {
  const Scratch scratch;
  const Strings lines = training_lines();
  WhitespaceTokenizer::build(lines)->save(scratch.folder(), "source.");
  SentencePieceTokenizer::train(lines, {.vocabulary_size = 300})->save(scratch.folder(), "target.");
  const auto words = load_tokenizer(scratch.folder(), "source.");
  const auto pieces = load_tokenizer(scratch.folder(), "target.");
  EXPECT_EQ(words->kind(), "whitespace");
  EXPECT_EQ(pieces->kind(), "sentencepiece");
  for (const std::string& line : lines) {
    EXPECT_EQ(words->decode(words->encode(line)), line);
    EXPECT_EQ(pieces->decode(pieces->encode(line)), line);
    EXPECT_EQ(words->encode(line), WhitespaceTokenizer::build(lines)->encode(line));
    if (&line - lines.data() > 20) break;
  }
  EXPECT_THROW(load_tokenizer(scratch.folder()), FileError);
  EXPECT_THROW(load_tokenizer(scratch.folder() / "nowhere"), FileError);
}

TEST(SentencePieceTokenizer, RoundTripsEveryTrainingLine) {
  const Strings lines = training_lines();
  const auto tokenizer = SentencePieceTokenizer::train(lines, {.vocabulary_size = 400});
  EXPECT_EQ(tokenizer->size(), 400);
  for (const std::string& line : lines) {
    const Ids ids = tokenizer->encode(line);
    EXPECT_EQ(tokenizer->decode(ids), line);
    const Strings pieces = tokenizer->pieces(ids);
    std::string joined;
    for (const std::string& word : tokenizer->words(pieces)) joined += (joined.empty() ? "" : " ") + word;
    EXPECT_EQ(joined, line) << "word_of merges the pieces into the blank-separated words";
  }
}

TEST(SentencePieceTokenizer, TrainingIsDeterministicAndDoesNotNormalise) {
  const Strings lines{"« Où ? » … ﬁn", "Où est « la fin » … ?", "la ﬁn"};
  const auto one = SentencePieceTokenizer::train(lines), two = SentencePieceTokenizer::train(lines);
  EXPECT_EQ(one->serialized(), two->serialized());
  EXPECT_EQ(one->decode(one->encode(lines[0])), lines[0]);
}

TEST(SentencePieceTokenizer, SpecialIdsAndControlPieces) {
  const auto tokenizer = SentencePieceTokenizer::train(training_lines(), {.vocabulary_size = 200});
  EXPECT_EQ(tokenizer->pieces(Ids{0, 1, 2, 3}), (Strings{"<pad>", "<unk>", "<s>", "</s>"}));
  for (const std::int32_t id : tokenizer->encode("<s> the </s> <pad>")) EXPECT_TRUE(id == 1 || id > 3) << id;
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  Ids ids = tokenizer->encode("The cat .");
  ids.insert(ids.begin(), kBosId);
  ids.push_back(kEosId);
  ids.push_back(kPadId);
  EXPECT_EQ(tokenizer->decode(ids), "The cat .");
  EXPECT_EQ(tokenizer->words(tokenizer->pieces(ids)), (Strings{"<s>", "The", "cat", ".", "</s>", "<pad>"}));
  EXPECT_THROW(tokenizer->decode(Ids{static_cast<std::int32_t>(tokenizer->size())}), InvalidArgument);
  EXPECT_THROW(tokenizer->pieces(Ids{-1}), InvalidArgument);
}

TEST(SentencePieceTokenizer, RefusesUnusableTraining) {
  EXPECT_THROW(SentencePieceTokenizer::train(Strings{}), InvalidArgument);
  EXPECT_THROW(SentencePieceTokenizer::train(Strings{"", " "}), InvalidArgument);
  EXPECT_THROW(SentencePieceTokenizer::train(Strings{"a\xFF"}), InvalidArgument);
  EXPECT_THROW(SentencePieceTokenizer::train(Strings{"a b"}, {.vocabulary_size = 3}), InvalidArgument);
  EXPECT_THROW(SentencePieceTokenizer::train(Strings{"a b"}, {.character_coverage = 0}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::text
