// Tokens as they are drawn, and the words that they make.
#include "fovea/text/pieces.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"
#include "fovea/text/tokenizer.h"
#include "text/scratch.h"
#include "text/tokenizer_json_texts.h"

namespace fovea::text {
namespace {

using Strings = std::vector<std::string>;

TEST(Pieces, NumbersAreWordsOfTheirOwn) {
  const Pieces pieces = number_pieces({7, 11, 7});
  EXPECT_EQ(pieces.tokens, (Strings{"7", "11", "7"}));
  EXPECT_EQ(pieces.words, pieces.tokens);
  EXPECT_EQ(pieces.word_of, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(pieces.ids, (std::vector<std::int32_t>{7, 11, 7}));
}

// WordPiece marks what goes on with a word, as its vocabulary does.
TEST(Pieces, OfWordPieceGoOnWithAWord) {
  const Scratch folder;
  const auto reader =
      read_pieces(folder.write("model/tokenizer.json", wordpiece_json().dump()).parent_path());
  const Pieces pieces = reader->read("unaffable, able");
  EXPECT_EQ(pieces.tokens, (Strings{"[CLS]", "un", "##aff", "##able", ",", "able", "[SEP]"}));
  EXPECT_EQ(pieces.words, (Strings{"[CLS]", "unaffable", ",", "able", "[SEP]"}));
  EXPECT_EQ(pieces.word_of, (std::vector<std::size_t>{0, 1, 1, 1, 2, 3, 4}));
  EXPECT_EQ(pieces.ids, (std::vector<std::int32_t>{1, 4, 5, 6, 7, 8, 2}));
  EXPECT_EQ(reader->target("able,"), (std::vector<std::int32_t>{8, 7}));
}

// Of ids that a model wrote, what each adds to the text says where words begin.
TEST(Pieces, WrittenIdsBeginWordsBehindBlanks) {
  const Scratch folder;
  const auto reader =
      read_pieces(folder.write("model/tokenizer.json", wordpiece_json().dump()).parent_path());
  const std::vector<std::int32_t> ids{4, 6, 8, 2};
  const Pieces pieces = reader->written(ids);
  EXPECT_EQ(pieces.words, (Strings{"unable", "able", "[SEP]"}));
  EXPECT_EQ(pieces.word_of, (std::vector<std::size_t>{0, 0, 1, 2}));
  EXPECT_EQ(pieces.ids, ids);
}

TEST(Pieces, OfATokenizerOfOursAreItsOwn) {
  const Scratch folder;
  const std::filesystem::path model = folder.write("model/note", "").parent_path();
  const Strings lines{"lo@@ wer a"};
  WhitespaceTokenizer::build(lines)->save(model);
  const Pieces pieces = read_pieces(model)->read("lo@@ wer a");
  EXPECT_EQ(pieces.tokens, (Strings{"lo@@", "wer", "a"}));
  EXPECT_EQ(pieces.words, (Strings{"lower", "a"}));
  EXPECT_EQ(pieces.word_of, (std::vector<std::size_t>{0, 0, 1}));
}

// A word that the list lacks is drawn as itself.
TEST(Pieces, OfMarianShowTheText) {
  const Scratch folder;
  const std::vector<std::string> lines{"the cat sat on the mat", "the mat"};
  const std::string model = SentencePieceTokenizer::train(lines, {.vocabulary_size = 30})->serialized();
  const std::filesystem::path path = folder.write("model/source.spm", model).parent_path();
  folder.write("model/target.spm", model);
  folder.write("model/vocab.json", R"({"</s>":0,"<unk>":1,"\u2581the":2})");
  const Pieces pieces = read_pieces(path)->read("the  Ωmat");
  EXPECT_EQ(pieces.words, (Strings{"the", "Ωmat", "</s>"}));
  EXPECT_EQ(pieces.tokens.front(), "▁the");
  EXPECT_EQ(pieces.ids.back(), 0);
}

TEST(Pieces, AFolderWithoutATokenizerIsRefused) {
  const Scratch folder;
  EXPECT_THROW(read_pieces(folder.write("model/note", "").parent_path()), FileError);
}

}  // namespace
}  // namespace fovea::text
