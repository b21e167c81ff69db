#include "fovea/text/marian_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fovea/core/error.h"
#include "fovea/text/tokenizer.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

using Ids = std::vector<std::int32_t>;

// A folder whose pieces are the words of one line and their letters; ids are their places in `pieces`.
void write_folder(const Scratch& scratch, const std::vector<std::string>& pieces) {
  const std::vector<std::string> lines{"the cat sat on the mat", "the mat"};
  const std::string model = SentencePieceTokenizer::train(lines, {.vocabulary_size = 30})->serialized();
  scratch.write("source.spm", model);
  scratch.write("target.spm", model);
  nlohmann::json vocab = nlohmann::json::object();
  for (std::size_t i = 0; i < pieces.size(); ++i) vocab[pieces[i]] = i;
  scratch.write("vocab.json", vocab.dump());
}

TEST(MarianTokenizer, MapsPiecesToTheListOfIds) {
  const Scratch scratch;
  const std::string blank = "\xE2\x96\x81";
  EXPECT_FALSE(MarianTokenizer::is_in(scratch.folder()));
  write_folder(scratch, {"</s>", "<unk>", ">>fr<<", blank + "the", blank + "mat", "<pad>", "s"});
  EXPECT_TRUE(MarianTokenizer::is_in(scratch.folder()));
  const MarianTokenizer tokenizer = MarianTokenizer::read(scratch.folder());
  EXPECT_EQ(tokenizer.size(), 7);
  EXPECT_EQ(tokenizer.encode("the mat"), (Ids{3, 4, 0}));
  EXPECT_EQ(tokenizer.encode(">>fr<< the mat"), (Ids{2, 3, 4, 0}));
  EXPECT_EQ(tokenizer.encode(">>xx<<the"), (Ids{1, 3, 0})) << "a code that the list lacks";
  EXPECT_EQ(tokenizer.encode("the <<"), tokenizer.encode(" the << ")) << "no code without its beginning";
  EXPECT_EQ(tokenizer.encode(""), Ids{0});
  EXPECT_EQ(tokenizer.decode(Ids{5, 3, 4, 6, 1, 0, 99, -1}), "the mats");
  EXPECT_THROW(tokenizer.encode("\xFF"), InvalidArgument);
}

TEST(MarianTokenizer, KnowsTheBytesOfEachId) {
  const Scratch scratch;
  const std::string blank = "\xE2\x96\x81";
  write_folder(scratch, {"</s>", "<unk>", ">>fr<<", blank + "the", blank + "mat", "<pad>", "s"});
  const MarianTokenizer tokenizer = MarianTokenizer::read(scratch.folder());
  const Encoding encoding = tokenizer.encoding(">>fr<<the   mats");
  EXPECT_EQ(encoding.ids, (Ids{2, 3, 4, 6, 0}));
  EXPECT_EQ(encoding.offsets, (std::vector<ByteRange>{{0, 6}, {6, 9}, {9, 15}, {15, 16}, {0, 0}}));
  EXPECT_EQ(encoding.words, (Ids{0, 0, 1, 1, -1})) << "no blank stands behind the code";
  EXPECT_EQ(encoding.texts, (Ids{0, 0, 0, 0, -1}));
  EXPECT_EQ(encoding.special.back(), 1);
}

// A model with a piece for each byte. Parsers of protocol buffers merge what is appended: SentencePiece
// messages (field 1) of the type BYTE, and byte_fallback (field 35) of the trainer's message (field 2).
std::string with_bytes(std::string model) {
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* digits = "0123456789ABCDEF";
    const std::string piece = std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
    model += std::string("\x0A\x0F\x0A\x06") + piece + std::string("\x15\0\0\0\0\x18\x06", 7);
  }
  return model + "\x12\x03\x98\x02\x01";
}

TEST(MarianTokenizer, DecodesBytesAndNoControlPieces) {
  const Scratch scratch;
  write_folder(scratch, {"</s>", "<unk>", "<0xC3>", "<0xA9>", "s", "<s>", "<pad>"});
  const std::vector<std::string> lines{"the cat sat on the mat"};
  const std::string model =
      with_bytes(SentencePieceTokenizer::train(lines, {.vocabulary_size = 30})->serialized());
  scratch.write("source.spm", model);
  scratch.write("target.spm", model);
  const MarianTokenizer tokenizer = MarianTokenizer::read(scratch.folder());
  EXPECT_EQ(tokenizer.encode("\xC3\xA9"), (Ids{1, 2, 3, 0})) << "the blank in front is not in the list";
  const Encoding bytes = tokenizer.encoding("s \xC3\xA9");
  EXPECT_EQ(bytes.offsets[bytes.size() - 2], (ByteRange{2, 4}));
  EXPECT_EQ(bytes.offsets[bytes.size() - 3], (ByteRange{2, 4})) << "bytes of a character share its place";
  EXPECT_EQ(tokenizer.decode(Ids{5, 4, 2, 3, 5, 4, 0, 6}), "s\xC3\xA9s");
  EXPECT_EQ(tokenizer.decode(Ids{4, 2, 4}), "s\xEF\xBF\xBDs") << "half a character";
}

TEST(MarianTokenizer, RefusesDamagedFolders) {
  const Scratch scratch;
  write_folder(scratch, {"</s>", "<unk>"});
  EXPECT_NO_THROW(MarianTokenizer::read(scratch.folder()));
  for (const char* vocab : {"{}", "[]", R"({"</s>":0})", R"({"<unk>":0})", R"({"</s>":0,"<unk>":-1})",
                            R"({"</s>":0,"<unk>":1000000000})", R"({"</s>":0,"<unk>":0})"}) {
    scratch.write("vocab.json", vocab);
    EXPECT_THROW(MarianTokenizer::read(scratch.folder()), FileError) << vocab;
  }
  write_folder(scratch, {"</s>", "<unk>"});
  scratch.write("target.spm", "no model");
  EXPECT_THROW(MarianTokenizer::read(scratch.folder()), FileError);
}

}  // namespace
}  // namespace fovea::text
