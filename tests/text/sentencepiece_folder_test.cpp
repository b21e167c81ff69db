// Folders of other libraries with a SentencePiece model and no tokenizer.json.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "files/fuzz_count.h"
#include "files/mutated.h"
#include "fovea/core/error.h"
#include "fovea/text/tokenizer_json.h"
#include "text/scratch.h"
#include "text/spm_file.h"

namespace fovea::text {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kBlank = "\xE2\x96\x81";

std::vector<SpmPiece> unigram_pieces() {
  return {{"<unk>", 0, 2},      {"<s>", 0, 3}, {"</s>", 0, 3}, {kBlank, -3},
          {kBlank + "the", -1}, {"s", -2},     {"cat", -2}};
}
std::vector<SpmPiece> t5_pieces() {
  return {{"<pad>", 0, 3}, {"</s>", 0, 3}, {"<unk>", 0, 2}, {kBlank + "the", -1}, {"s", -2}, {kBlank, -3}};
}
std::vector<SpmPiece> bpe_pieces() {
  return {{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}, {"ab", 0}, {kBlank + "ab", -1},
          {"<x>", 0, 4},   {kBlank, -2},  {"a", -3},      {"b", -4}, {"<0x0A>", 0, 6}};
}

// A folder, and its tokenizer.
class Folder {
 public:
  explicit Folder(const std::string& file, const std::string& model, const std::string& config) {
    scratch_.write(file, model);
    scratch_.write("tokenizer_config.json", config);
  }
  const Scratch& scratch() const { return scratch_; }
  JsonTokenizer read() const { return read_folder_tokenizer(scratch_.folder()).tokenizer; }
  Ids ids(std::string_view text) const { return read().encode(text).ids; }
  void refused(const std::string& words) const {
    try {
      read();
      ADD_FAILURE() << "was read, where it should say " << words;
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }

 private:
  Scratch scratch_;
};

TEST(SentencePieceFolder, T5HasExtraIdsBehindThePieces) {
  const Folder folder("spiece.model", spm_file(t5_pieces()),
                      R"({"tokenizer_class":"T5Tokenizer","extra_ids":3})");
  EXPECT_TRUE(has_folder_tokenizer(folder.scratch().folder()));
  const JsonTokenizer tokenizer = folder.read();
  EXPECT_EQ(tokenizer.size(), 9);
  EXPECT_EQ(tokenizer.id_of("<extra_id_0>"), 8) << "from the last one to the first";
  const Encoding encoding = tokenizer.encode("the s <extra_id_2>");
  EXPECT_EQ(encoding.ids, (Ids{3, 5, 4, 6, 1}));
  EXPECT_EQ(encoding.offsets[2], (ByteRange{4, 5}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "the s");
  EXPECT_EQ(tokenizer.encode("the", "s").ids, (Ids{3, 1, 5, 4, 1}));
}

TEST(SentencePieceFolder, RobertaMovesIdsByOne) {
  const Folder folder("sentencepiece.bpe.model", spm_file(unigram_pieces()),
                      R"({"tokenizer_class":"XLMRobertaTokenizerFast"})");
  EXPECT_EQ(folder.ids("the cats <mask>?"), (Ids{0, 5, 4, 7, 6, 8, 4, 3, 2}));
  EXPECT_EQ(folder.read().encode("the", "s").ids, (Ids{0, 5, 2, 2, 4, 6, 2}));
  EXPECT_EQ(read_folder_tokenizer(folder.scratch().folder()).mask_id, 8);
}

TEST(SentencePieceFolder, CamembertHasFourTokensThatAreNotUsed) {
  const Folder folder("sentencepiece.bpe.model", spm_file(unigram_pieces()),
                      R"({"tokenizer_class":"CamembertTokenizer"})");
  EXPECT_EQ(folder.ids("the s?"), (Ids{5, 8, 7, 9, 3, 6}));
  EXPECT_EQ(folder.read().id_of("<mask>"), 11);
}

TEST(SentencePieceFolder, MbartHasLanguages) {
  const std::string model = spm_file(unigram_pieces());
  EXPECT_EQ(Folder("sentencepiece.bpe.model", model, R"({"tokenizer_class":"MBartTokenizer"})").ids("the"),
            (Ids{5, 2, 11}))
      << "English is the fourth language";
  EXPECT_EQ(
      Folder("sentencepiece.bpe.model", model, R"({"tokenizer_class":"MBart50Tokenizer","src_lang":"sl_SI"})")
          .ids("the"),
      (Ids{59, 5, 2}));
  Folder("sentencepiece.bpe.model", model, R"({"tokenizer_class":"MBartTokenizer","src_lang":"sl_SI"})")
      .refused("src_lang: expected a language of MBartTokenizer");
}

TEST(SentencePieceFolder, LlamaMergesPiecesAndPutsABlankBeforeTheText) {
  const std::string model = spm_file(bpe_pieces(), 2) + proto_field(2, std::string("\x98\x02\x01", 3));
  const Folder folder("tokenizer.model", model, R"({"tokenizer_class":"LlamaTokenizer"})");
  EXPECT_EQ(folder.ids("ab"), (Ids{1, 4})) << "without add_bos_token a text begins with <s>";
  EXPECT_EQ(folder.ids("ab b<x>\n"), (Ids{1, 4, 6, 8, 5, 9})) << "a byte, and no blank behind a token";
  EXPECT_EQ(folder.read().decode(Ids{1, 4, 9, 4}), "ab\n ab");
  const Folder gemma(
      "tokenizer.model", model,
      R"({"tokenizer_class":"GemmaTokenizer","bos_token":"<s>","eos_token":"</s>","pad_token":"</s>",)"
      R"("add_bos_token":false,"add_eos_token":true})");
  EXPECT_EQ(gemma.ids("ab ab"), (Ids{3, 4, 2})) << "a text as it is";
}

TEST(SentencePieceFolder, TheModelTypeStandsForAClass) {
  const Folder folder("spiece.model", spm_file(t5_pieces()), "{}");
  folder.refused("the folder has neither tokenizer_class nor model_type");
  folder.scratch().write("config.json", R"({"model_type":"mt5"})");
  EXPECT_EQ(folder.ids("the"), (Ids{3, 1}));
  folder.scratch().write("config.json", R"({"model_type":"albert"})");
  folder.refused("model_type 'albert'");
  folder.scratch().write("config.json", R"({"model_type":"albert","tokenizer_class":"T5Tokenizer"})");
  EXPECT_EQ(folder.ids("the"), (Ids{3, 1}));
}

TEST(SentencePieceFolder, AddedTokensFollowThePieces) {
  const std::string model = spm_file(t5_pieces());
  const Folder with_map("spiece.model", model, R"({"tokenizer_class":"T5Tokenizer","extra_ids":0})");
  with_map.scratch().write("added_tokens.json", R"({"<new>":6,"<mine>":7})");
  with_map.scratch().write("special_tokens_map.json", R"({"additional_special_tokens":["<mine>"]})");
  EXPECT_EQ(with_map.ids("the<new>"), (Ids{3, 6, 1}));
  EXPECT_TRUE(with_map.read().is_special(7));
  EXPECT_FALSE(with_map.read().is_special(6));
  const Folder with_list("spiece.model", model,
                         R"({"tokenizer_class":"T5Tokenizer","extra_ids":0,"added_tokens_decoder":)"
                         R"({"6":{"content":"<a b>","lstrip":true,"normalized":false,"special":true}}})");
  EXPECT_EQ(with_list.ids("the <a b>"), (Ids{3, 6, 1}));
  const Folder odd("spiece.model", model,
                   R"({"tokenizer_class":"T5Tokenizer","added_tokens_decoder":{"six":{"content":"x"}}})");
  odd.refused("added_tokens_decoder: expected ids");
}

TEST(SentencePieceFolder, RefusesWhatItsClassDoesNotRead) {
  const char* t5 = R"({"tokenizer_class":"T5Tokenizer"})";
  Folder("spiece.model", spm_file(t5_pieces(), 2), t5).refused("expected Unigram");
  Folder("tokenizer.model", spm_file(t5_pieces()), t5)
      .refused("is not read by T5Tokenizer: expected spiece.model");
  Folder("spiece.model", "no model", t5).refused("spiece.model");
  std::vector<SpmPiece> pieces = t5_pieces();
  pieces[3].score = std::numeric_limits<float>::quiet_NaN();
  Folder("spiece.model", spm_file(pieces), t5).refused("piece 3 has a score that is no number");
  pieces[3] = {"\xFF", 0};
  Folder("spiece.model", spm_file(pieces), t5).refused("piece 3 is not UTF-8");
  pieces[3] = {"x", 0, 9};
  Folder("spiece.model", spm_file(pieces), t5).refused("piece 3 is of a kind that is not known: 9");
  pieces = t5_pieces();
  pieces[1].text = "x";
  Folder("spiece.model", spm_file(pieces), t5).refused("has no '</s>', which T5Tokenizer needs");
  Folder("spiece.model", spm_file(t5_pieces()), R"({"tokenizer_class":"T5Tokenizer","extra_ids":1e9})")
      .refused("extra_ids: expected a whole number from 0 to 100000");
  Folder("spiece.model", spm_file(t5_pieces()), R"({"tokenizer_class":"T5Tokenizer","eos_token":5})")
      .refused("eos_token: expected a token, got 5");
}

// "aa", "aaa" and so on: each is made of the others in as many ways as it has letters.
TEST(SentencePieceFolder, RefusesPiecesOfTooManyMerges) {
  std::vector<SpmPiece> pieces = bpe_pieces();
  for (std::size_t size = 1; size <= 1500; ++size) pieces.push_back({std::string(size, 'z'), 0});
  Folder("tokenizer.model", spm_file(pieces, 2), R"({"tokenizer_class":"LlamaTokenizer"})")
      .refused("made of each other in too many ways");
}

TEST(SentencePieceFolder, Fuzz) {
  const std::string config =
      R"({"tokenizer_class":"T5Tokenizer","extra_ids":3,"eos_token":{"content":"</s>","lstrip":false},)"
      R"("added_tokens_decoder":{"9":{"content":"<a>","special":true}},"model_max_length":512})";
  const std::string good = spm_file(t5_pieces());
  const Folder folder("spiece.model", good, config);
  PhiloxStream random(20261125);
  int read = 0;
  const int count = files::fuzz_count(2000);
  for (int i = 0; i < count; ++i) {
    // The model's bytes and the config's text in turn.
    std::string model = good;
    if (i % 2 == 0) {
      for (std::uint32_t changes = 1 + random.next_below(3); changes > 0; --changes)
        model[random.next_below(static_cast<std::uint32_t>(model.size()))] =
            static_cast<char>(random.next_below(256));
    }
    folder.scratch().write("spiece.model", model);
    folder.scratch().write("tokenizer_config.json", i % 2 == 0 ? config : files::mutated(config, random));
    try {
      const JsonTokenizer tokenizer = folder.read();
      tokenizer.decode(tokenizer.encode("the s <extra_id_1> x\xC3\xA9").ids);
      ++read;
    } catch (const FileError&) {
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, count);
}

}  // namespace
}  // namespace fovea::text
