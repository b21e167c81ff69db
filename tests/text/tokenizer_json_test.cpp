// tokenizer.json without Python: small tokenizers of each type, whose results follow by hand from the
// definitions. tokenizers_oracle.py compares with the library that defines the format.
#include "fovea/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fovea/core/error.h"
#include "text/scratch.h"
#include "text/tokenizer_json_texts.h"

namespace fovea::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Ranges = std::vector<ByteRange>;
using Special = EncodeOptions::SpecialTokens;
using Keep = JsonTokenizer::SpecialTokens;

JsonTokenizer made(const nlohmann::json& json) {
  return JsonTokenizer::from_json(json.dump(), "tokenizer.json");
}

Ids plain_ids(const JsonTokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.special_tokens = Special::leave_out}).ids;
}

TEST(JsonTokenizer, WordPieceTakesTheLongestToken) {
  const JsonTokenizer tokenizer = made(wordpiece_json());
  const Encoding encoding = tokenizer.encode("Unaffable, \xC3\xBAn!");
  // [CLS] un ##aff ##able , un [UNK] [SEP]
  EXPECT_EQ(encoding.ids, (Ids{1, 4, 5, 6, 7, 4, 0, 2}));
  EXPECT_EQ(encoding.offsets, (Ranges{{0, 0}, {0, 2}, {2, 5}, {5, 9}, {9, 10}, {11, 14}, {14, 15}, {0, 0}}));
  EXPECT_EQ(encoding.special, (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(encoding.words, (Ids{-1, 0, 0, 0, 1, 2, 3, -1}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "unaffable, un [UNK]");
  EXPECT_EQ(tokenizer.decode(encoding.ids, Keep::keep), "[CLS] unaffable, un [UNK] [SEP]");
}

TEST(JsonTokenizer, PairsHaveTypes) {
  const Encoding encoding = made(wordpiece_json()).encode("un", "un, able");
  EXPECT_EQ(encoding.ids, (Ids{1, 4, 2, 4, 7, 8, 2}));
  EXPECT_EQ(encoding.types, (Ids{0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(encoding.texts, (Ids{-1, 0, -1, 1, 1, 1, -1}));
  EXPECT_EQ(encoding.offsets[5], (ByteRange{4, 8}));
}

TEST(JsonTokenizer, AddedTokensAreFoundFirst) {
  const JsonTokenizer tokenizer = made(wordpiece_json());
  // "<mask>" takes the blanks before it; "able-un" is a whole word only; the longer of two is taken.
  EXPECT_EQ(plain_ids(tokenizer, "un  <mask>able"), (Ids{4, 9, 8}));
  EXPECT_EQ(tokenizer.encode("un  <mask>able", {.special_tokens = Special::leave_out}).offsets[1],
            (ByteRange{2, 10}));
  EXPECT_EQ(plain_ids(tokenizer, "able-un able-unaff"), (Ids{10, 8, 0, 4, 5}));
  EXPECT_EQ(plain_ids(tokenizer, "<mask><mask>>"), (Ids{9, 11}));
  // "ÀXLE" is searched in the normalised text.
  EXPECT_EQ(plain_ids(tokenizer,
                      "x\xC3\x80"
                      "XLEx"),
            (Ids{0, 12, 0}));
  EXPECT_TRUE(tokenizer.is_special(9));
  EXPECT_FALSE(tokenizer.is_special(10));
  EXPECT_EQ(tokenizer.id_of("<mask>"), 9);
  EXPECT_EQ(tokenizer.token(12),
            "\xC3\x80"
            "XLE");
  EXPECT_EQ(tokenizer.size(), 13);
}

TEST(JsonTokenizer, BytesGoThereAndBack) {
  const JsonTokenizer tokenizer = made(byte_bpe_json());
  std::string every;
  for (int byte = 1; byte < 128; ++byte) every.push_back(static_cast<char>(byte));
  every += " \xC3\xA9\xE4\xB8\x80\xF0\x9F\x98\x80 \xE2\x80\x8D";
  const Encoding encoding = tokenizer.encode(every);
  EXPECT_EQ(tokenizer.decode(encoding.ids), every);
  // The four bytes of a character have its range.
  EXPECT_EQ(tokenizer.encode("\xF0\x9F\x98\x80").offsets, (Ranges(4, {0, 4})));
  // "Ġab" is one merge after "ab"; its range begins behind the blank.
  EXPECT_EQ(tokenizer.encode("ab ab").ids, (Ids{256, 257}));
  EXPECT_EQ(tokenizer.encode("ab ab").offsets, (Ranges{{0, 2}, {3, 5}}));
  // Bytes that are no text become U+FFFD.
  EXPECT_EQ(tokenizer.decode(Ids{*tokenizer.id_of("\xC3\xA3")}), "\xEF\xBF\xBD");
}

TEST(JsonTokenizer, MergesInOrderOfRank) {
  auto json = byte_bpe_json();
  json["model"]["merges"] = {"b c", "a b"};  // the older form, of blanks
  json["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}, {"ab", 4}, {"abc", 5}};
  EXPECT_EQ(plain_ids(made(json), "abc"), (Ids{0, 3}));
  // "a b" could be merged at first; after "b c" the pair there is "a bc".
  json["model"]["merges"] = {"b c", "a b", "a bc"};
  EXPECT_EQ(plain_ids(made(json), "abc"), (Ids{5}));
  json["model"]["merges"] = {"b c", "a b"};
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(plain_ids(made(json), "abc"), (Ids{5}));
}

TEST(JsonTokenizer, CharactersFallBackToBytes) {
  const JsonTokenizer tokenizer = made(char_bpe_json());
  // "▁a", then é as two bytes, then an unknown character that has no bytes here, twice, fused.
  EXPECT_EQ(plain_ids(tokenizer, "a\xC3\xA9zz"), (Ids{5, 3, 4, 0}));
  EXPECT_EQ(tokenizer.encode("a\xC3\xA9zz", {.special_tokens = Special::leave_out}).offsets,
            (Ranges{{0, 1}, {1, 3}, {1, 3}, {3, 5}}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 3, 4}), "a\xC3\xA9");
  EXPECT_EQ(tokenizer.decode(Ids{5, 3}), "a\xEF\xBF\xBD");
}

TEST(JsonTokenizer, UnigramTakesTheBestSum) {
  const JsonTokenizer tokenizer = made(unigram_json());
  // ▁ab + c = -3, ▁a + bc = -2.5; x and y are unknown and fused.
  const Encoding encoding = tokenizer.encode("abc xy");
  EXPECT_EQ(encoding.ids, (Ids{3, 4, 6, 0, 1}));
  EXPECT_EQ(encoding.offsets, (Ranges{{0, 1}, {1, 3}, {4, 5}, {4, 6}, {0, 0}}))
      << "the blank that was put before x has its place";
  EXPECT_EQ(tokenizer.decode(encoding.ids), "abc <unk>");
}

TEST(JsonTokenizer, AnUnknownCharacterCostsMoreThanTheWorstToken) {
  auto json = unigram_json();
  json["model"]["vocab"].push_back(nlohmann::json::array({"xc", -12.0}));
  EXPECT_EQ(plain_ids(made(json), "xc"), (Ids{6, 7}));
}

TEST(JsonTokenizer, CharsmapReplaces) {
  auto json = unigram_json();
  json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", charsmap_base64('A', "ab")}};
  const Encoding encoding = made(json).encode("Ac");
  EXPECT_EQ(encoding.ids, (Ids{3, 4, 1})) << "of abc";
  EXPECT_EQ(encoding.offsets, (Ranges{{0, 1}, {0, 2}, {0, 0}})) << "a and b come from A";
}

TEST(JsonTokenizer, NormalizersKeepTheirPlaces) {
  auto json = wordpiece_json();
  json["post_processor"] = nullptr;
  json["added_tokens"] = nlohmann::json::array();
  json["model"]["vocab"] = {{"[UNK]", 0}, {"\xC3\xA9", 1},  {"e\xCC\x81", 2},
                            {"fi", 3},    {"i\xCC\x87", 4}, {"\xEA\xB0\x81", 5}};
  const auto ids = [&](const nlohmann::json& normalizer, std::string_view text) {
    json["normalizer"] = normalizer;
    json["pre_tokenizer"] = nullptr;
    return made(json).encode(text).ids;
  };
  EXPECT_EQ(ids({{"type", "NFC"}}, "e\xCC\x81"), Ids{1});
  EXPECT_EQ(ids({{"type", "NFD"}}, "\xC3\xA9"), Ids{2});
  EXPECT_EQ(ids({{"type", "NFKC"}}, "\xEF\xAC\x81"), Ids{3});
  EXPECT_EQ(ids({{"type", "Lowercase"}}, "\xC4\xB0"), Ids{4});
  EXPECT_EQ(ids({{"type", "NFC"}}, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), Ids{5}) << "Hangul";
  EXPECT_EQ(ids({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, " fi\t"), Ids{3});
  EXPECT_EQ(ids({{"type", "Replace"}, {"pattern", {{"Regex", "x+"}}}, {"content", "f"}}, "xxi"), Ids{3});
}

TEST(JsonTokenizer, LimitsAreTheFilesOrTheCallers) {
  auto json = wordpiece_json();
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", 5}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {
      {"strategy", {{"Fixed", 7}}}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 3},
      {"pad_type_id", 0},           {"pad_token", "[PAD]"}};
  const JsonTokenizer tokenizer = made(json);
  const EncodeOptions as_file{.limits = EncodeOptions::Limits::apply};
  EXPECT_EQ(tokenizer.encode("un un un un un", as_file).ids, (Ids{1, 4, 4, 4, 2, 3, 3}));
  EXPECT_EQ(tokenizer.encode("un un un un un", as_file).special[6], 1);
  EXPECT_EQ(tokenizer.encode("un un un un un").size(), 7u);
  EXPECT_EQ(tokenizer.encode("un un un un un", {.max_length = 3}).ids, (Ids{1, 4, 2}));
  EXPECT_EQ(tokenizer.encode("un un un un", "able", {.max_length = 6}).ids, (Ids{1, 4, 4, 2, 8, 2}));
  EXPECT_THROW(tokenizer.encode("un", {.max_length = 1}), InvalidArgument);
}

TEST(JsonTokenizer, TheWriterKeepsTheContent) {
  for (const nlohmann::json& json : {wordpiece_json(), byte_bpe_json(), char_bpe_json(), unigram_json()}) {
    const std::string written = made(json).to_json();
    EXPECT_EQ(nlohmann::json::parse(written), json);
    EXPECT_EQ(JsonTokenizer::from_json(written, "again").to_json(), written);
  }
}

TEST(JsonTokenizer, EscapesInTheFileAreRead) {
  std::string text = wordpiece_json().dump();
  const std::string plain = "\"un\":4", escaped = "\"\\u0075n\":4";
  text.replace(text.find(plain), plain.size(), escaped);
  EXPECT_EQ(plain_ids(JsonTokenizer::from_json(text, "t"), "un"), Ids{4});
}

TEST(JsonTokenizer, RefusesTextThatIsNoUtf8) {
  EXPECT_THROW(made(wordpiece_json()).encode("a\xFF"), InvalidArgument);
  EXPECT_EQ(made(wordpiece_json()).decode(Ids{4, -1, 1 << 30}), "un") << "ids without a token are left out";
}

TEST(FolderTokenizer, ReadsTheConfigBesideIt) {
  const Scratch scratch;
  EXPECT_FALSE(has_folder_tokenizer(scratch.folder()));
  try {
    read_folder_tokenizer(scratch.folder());
    ADD_FAILURE() << "there is none";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("token ids may be given instead of text"), std::string::npos);
  }
  scratch.write("tokenizer.json", wordpiece_json().dump());
  EXPECT_FALSE(read_folder_tokenizer(scratch.folder()).max_length);
  scratch.write("tokenizer_config.json", R"({"model_max_length": 512, "do_lower_case": true})");
  EXPECT_EQ(read_folder_tokenizer(scratch.folder()).max_length, 512);
  scratch.write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_FALSE(read_folder_tokenizer(scratch.folder()).max_length) << "how transformers spells no limit";
  for (const char* none : {"0", "-1", "7.5", "\"512\"", "true", "[]"}) {
    scratch.write("tokenizer_config.json", std::string("{\"model_max_length\": ") + none + "}");
    EXPECT_THROW(read_folder_tokenizer(scratch.folder()), FileError) << none;
  }
  scratch.write("tokenizer_config.json", R"({"truncation_side": "left", "model_max_length": null})");
  const FolderTokenizer left = read_folder_tokenizer(scratch.folder());
  EXPECT_FALSE(left.max_length);
  const auto cut = [&](std::optional<EncodeOptions::CutSide> side) {
    return left.tokenizer.encode("able un,", {.max_length = 3, .cut_side = side}).ids;
  };
  EXPECT_EQ(cut(left.cut_side), (Ids{1, 7, 2}));
  EXPECT_EQ(cut({}), (Ids{1, 8, 2}));
  scratch.write("tokenizer_config.json", R"({"truncation_side": "middle"})");
  EXPECT_THROW(read_folder_tokenizer(scratch.folder()), FileError);
  scratch.write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_THROW(read_folder_tokenizer(scratch.folder()), FileError);
}

// Each token takes the blanks behind it, which are also tokens. A copy of them for each one would be 45 GB.
TEST(JsonTokenizer, ManyTokensTakeTheSameBlanks) {
  nlohmann::json of =
      tokenizer_json({{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"?", 0}, {"a", 1}}}});
  of["post_processor"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  for (const bool behind : {false, true}) {
    of["added_tokens"] = {added_token(2, " ", {{"lstrip", !behind}, {"rstrip", behind}})};
    const JsonTokenizer tokenizer = JsonTokenizer::from_json(of.dump(), "t.json");
    constexpr std::uint32_t count = 100'000;
    const Encoding encoding = tokenizer.encode(std::string(count, ' ') + "a");
    ASSERT_EQ(encoding.size(), count + 1);
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(encoding.ids[i], 2);
      ASSERT_EQ(encoding.offsets[i].end, behind ? std::size_t{count} : std::size_t{i} + 1);
      ASSERT_EQ(encoding.offsets[i].begin, encoding.offsets[i].end) << "its blanks are taken off";
    }
    EXPECT_EQ(encoding.ids.back(), 1);
  }
}

}  // namespace
}  // namespace fovea::text
