// Files that are damaged or made to harm: each is refused by its name, the key and the reason, and costs
// memory in proportion to its size.
#include <gtest/gtest.h>

#include <functional>

#include "files/fuzz_count.h"
#include "fovea/core/error.h"
#include "fovea/core/philox.h"
#include "fovea/text/tokenizer_json.h"
#include "text/scratch.h"
#include "text/tokenizer_json_texts.h"

namespace fovea::text {
namespace {

using nlohmann::json;
using Change = std::function<void(json&)>;

// What reading, or encoding `text`, says about the changed file.
std::string refusal(json of, const Change& change, const std::string& text = "ab") {
  change(of);
  try {
    JsonTokenizer::from_json(of.dump(), "t.json").encode(text);
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), "t.json");
    EXPECT_LT(std::string(error.what()).size(), 1000u);
    return error.what();
  }
  return "accepted";
}

void expect_part(const std::string& whole, const std::string& part) {
  EXPECT_NE(whole.find(part), std::string::npos) << whole << "\nlacks: " << part;
}

TEST(BadTokenizerJson, IdsAreCheckedBeforeTheyAreUsed) {
  const auto with_id = [](const json& id) {
    return refusal(wordpiece_json(), [&](json& j) { j["model"]["vocab"]["un"] = id; });
  };
  expect_part(with_id(-4), "model.vocab: the id of 'un': expected a whole number of at least 0, got -4");
  expect_part(with_id(4.0), "expected a whole number of at least 0, got 4.0");
  expect_part(with_id("4"), "got a string");
  expect_part(with_id(1 << 30), "model.vocab: the id 1073741824 is too large for 9 tokens");
  expect_part(with_id(4294967300), "expected at most 2^30, got 4294967300");
  expect_part(with_id(5), "model.vocab: the id 5 is given to");
  const auto added = [](const json& id) {
    return refusal(wordpiece_json(), [&](json& j) { j["added_tokens"][2]["id"] = id; });
  };
  expect_part(added(-1), "added_tokens[2].id: expected a whole number from 0 to 1073741824, got -1");
  expect_part(added(1 << 29), "added_tokens[2].id: expected 9, the id of '<mask>'");
}

TEST(BadTokenizerJson, MergesNameTheirTokens) {
  const auto with = [](const json& merges) {
    return refusal(byte_bpe_json(), [&](json& j) { j["model"]["merges"] = merges; });
  };
  expect_part(with({"a zz"}), "model.merges: 'zz' is not in the vocabulary");
  expect_part(with({"a c"}), "model.merges: 'ac' is not in the vocabulary");
  expect_part(with({"abc"}), "expected two tokens with a blank between them, got 'abc'");
  expect_part(with(json::array({json::array({"a"})})), "model.merges: expected two tokens");
  expect_part(with(json::array({json::array({"a", "b", "c"})})),
              "model.merges: expected two tokens, got more");
  expect_part(with(json::array({3})), "expected a merge, got a number");
  // A merge whose second token is its own prefix gives the first token again. It ends, because each merge
  // takes a symbol away.
  json cycle = byte_bpe_json();
  cycle["model"]["continuing_subword_prefix"] = "#";
  cycle["model"]["vocab"] = {{"a", 0}, {"#", 1}, {"#a", 2}};
  cycle["model"]["merges"] = json::array({json::array({"a", "#"}), json::array({"#", "#"})});
  cycle["pre_tokenizer"] = nullptr;
  EXPECT_NO_THROW(JsonTokenizer::from_json(cycle.dump(), "t").encode("aaaa"));
}

TEST(BadTokenizerJson, PartsThatAreNotKnownAreNamed) {
  const auto set = [](const char* part, const json& value) {
    return refusal(wordpiece_json(), [&](json& j) { j[part] = value; });
  };
  expect_part(set("normalizer", {{"type", "Odd"}}), "normalizer.type: expected BertNormalizer, NFC");
  expect_part(
      set("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Odd"}}}}}),
      "normalizer.normalizers[1].type: expected");
  expect_part(set("normalizer", {{"type", "NFC"}, {"odd", 1}}),
              "normalizer.odd: is not known, and might change the ids");
  expect_part(set("pre_tokenizer", {{"type", "UnicodeScripts"}}), "pre_tokenizer.type: expected");
  expect_part(set("post_processor", {{"type", "Odd"}}), "post_processor.type: expected");
  expect_part(set("decoder", {{"type", "CTC"}}), "decoder.type: expected");
  expect_part(set("model", {{"type", "Odd"}, {"vocab", json::object()}}), "model.type: expected BPE");
  expect_part(set("version", "2.0"), "version: expected \"1.0\", got \"2.0\"");
  expect_part(set("odd", 1), "'odd' is not known, and might change the ids");
  expect_part(set("model", json::array()), "expected an object, got an array");
  expect_part(set("decoder", 3), "decoder: expected an object, got 3");
  expect_part(refusal(byte_bpe_json(), [](json& j) { j["model"]["dropout"] = 0.1; }),
              "model.dropout: expected null or 0, got 0.1");
  expect_part(
      refusal(wordpiece_json(), [](json& j) { j["post_processor"]["special_tokens"].erase("[SEP]"); }),
      "post_processor.special_tokens.[SEP]: is missing, and a template uses it");
  expect_part(refusal(
                  wordpiece_json(), [](json& j) { j["model"]["unk_token"] = "[ODD]"; }, "zzz"),
              "model.unk_token: '[ODD]' is not in the vocabulary, and a text needs it");
}

TEST(BadTokenizerJson, PatternsHaveLimits) {
  const auto with = [](const std::string& pattern, const std::string& text) {
    return refusal(
        byte_bpe_json(),
        [&](json& j) {
          j["pre_tokenizer"] = {{"type", "Split"},
                                {"pattern", {{"Regex", pattern}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
        },
        text);
  };
  expect_part(with("(a+)+$", std::string(40, 'a') + "b"),
              "within the limits of steps, time and memory, got '(a+)+$'");
  // Each search takes few steps, and all of them together would take minutes.
  const std::pair<const char*, std::size_t> slow[] = {{"a[ac]*a[ac]*b|a", 20'000},
                                                      {"a[ac]*a[ac]*[bd]", 30'000},
                                                      {"a(?=[^b]*b)", 150'000},
                                                      {"a(?=[^b]*b)|a", 150'000}};
  for (const auto& [pattern, letters] : slow) {
    const std::string found = with(pattern, std::string(letters, 'a'));
    expect_part(found, "in a text of " + std::to_string(letters) + " bytes within the limits of steps, time");
    expect_part(found, pattern);
  }
  expect_part(with("(", "a"), "pre_tokenizer.pattern: expected a regular expression, got '('");
  expect_part(with("(?R)", "a"), "expected what Oniguruma and PCRE2 read alike, got (?R)");
  expect_part(with("[a[[:alpha:]]]", "a"), "a class with a name of POSIX in a class at byte 3");
  expect_part(with("[a[]]", "a"), "an empty class in a class at byte 3");
  expect_part(with("[a-[b]]", "a"), "a range that ends in a class in a class at byte 3");
  expect_part(with("[[[[[[[[[[a]]]]]]]]]]", "a"), "classes in classes deeper than 8 at byte 9");
  for (const char* empty : {"[a&&]", "[&&a]", "[a&&&&b]", "[a&&[&&b]]"})
    expect_part(with(empty, "a"), "an intersection of classes with an empty side at byte");
  for (const char* insensitive : {"(?i)[a&&b]", "(?i:[a[^b]])", "[a&&b](?i:c)"})
    expect_part(with(insensitive, "a"), "such a class beside (?i)");
  expect_part(with("[a&&b", "a"), "a class without its end");
  expect_part(with("[[a]-z]", "a"), "a range that begins with a class in a class");
  expect_part(with("(a)\\1", "a"), "got \\1 at byte 3");
  // In Oniguruma the first is (?:a{2})?, which is empty before a single a.
  expect_part(with("a{2}?", "a"), "got }? behind an exact number at byte 4 of 'a{2}?'");
  for (const char* alike : {"a{2,}?", "a{1,2}?", "a\\{2}?", "\\p{L}?", "a{2}"})
    EXPECT_EQ(with(alike, "a"), "accepted") << alike;
  expect_part(with(std::string(1 << 17, 'a'), "a"), "expected at most 65536 bytes, got 131072");
  expect_part(with("(((((a{1,900}){1,900}){1,900}){1,900}){1,900})", "a"), "expected a regular expression");
  expect_part(with("(?:abc{9}){300}", "a"), "expected one without large repetitions of groups");
  EXPECT_EQ(with("\\w+|\\s", "ab ab"), "accepted");
}

TEST(BadTokenizerJson, NestingAndRepetitionAreRefused) {
  const auto text = [](const std::string& part) {
    return "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}," + part +
           "}";
  };
  const auto read = [](const std::string& json) {
    try {
      JsonTokenizer::from_json(json, "t.json");
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(read(text("\"decoder\":null")), "accepted");
  expect_part(read(text("\"decoder\":" + std::string(100'000, '['))), "nest too deep");
  expect_part(read(text("\"decoder\":null,\"decoder\":null")), "two values of 'decoder'");
  expect_part(read(text("\"model\":{}")), "two values of 'model'");
  std::string many = "\"added_tokens\":[0";
  for (int i = 0; i < 600'000; ++i) many += ",0";
  expect_part(read(text(many + "]")), "added_tokens: has more than 500000 values");
  expect_part(read(""), "expected a JSON object, got the end of the text");
  const std::string whole = unigram_json().dump();
  for (std::size_t size = 0; size < whole.size(); size += 7)
    EXPECT_NE(read(whole.substr(0, size)), "accepted") << size;
}

TEST(BadTokenizerJson, CharsmapStaysInside) {
  const auto with = [](const json& map) {
    return refusal(unigram_json(), [&](json& j) {
      j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", map}};
    });
  };
  EXPECT_EQ(with(charsmap_base64('A', "ab")), "accepted");
  expect_part(with(charsmap_base64('A', "ab", 3)),
              "normalizer.precompiled_charsmap: normalisation trie: a value");
  expect_part(with(charsmap_base64('A', "ab", 0, 0x7FFFFC00u)), "an edge points outside");
  expect_part(with(charsmap_base64('A', "\xC3\xA9", 1)), "a replacement begins inside a character");
  expect_part(with(charsmap_base64('A', "\xC3")), "a replacement is not UTF-8");
  expect_part(with("****"), "expected letters of base64, got '*'");
  expect_part(with(""), "too short");
  // The key is named once.
  EXPECT_EQ(with(nullptr), "t.json: normalizer.precompiled_charsmap: expected a string, got null");
}

TEST(BadTokenizerJson, UnigramNeedsScoresAndItsUnknownId) {
  const auto with = [](const Change& change) { return refusal(unigram_json(), change, "z"); };
  expect_part(with([](json& j) { j["model"]["unk_id"] = 7; }), "model.unk_id: expected less than 7, got 7");
  expect_part(with([](json& j) { j["model"]["unk_id"] = nullptr; }),
              "model.unk_id: is null, and a text needs it");
  expect_part(with([](json& j) { j["model"]["vocab"][2][1] = "x"; }), "expected a score, got a string");
  expect_part(with([](json& j) { j["model"]["vocab"][2] = json::array({"x"}); }),
              "expected a score behind the token");
  expect_part(with([](json& j) { j["model"]["vocab"] = json::array(); }), "model.vocab: is empty");
}

json replace_json(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// Twelve replacements of one letter by ten would make a terabyte of it.
TEST(BadTokenizerJson, ChainedReplacementsAreBounded) {
  json twelve = json::array();
  for (int i = 0; i < 12; ++i) twelve.push_back(replace_json("a", std::string(10, 'a')));
  const auto normalizer = [&](const json& parts) {
    return refusal(
        byte_bpe_json(),
        [&](json& j) {
          j["normalizer"] = {{"type", "Sequence"}, {"normalizers", parts}};
        },
        "a");
  };
  expect_part(normalizer(twelve), "expected a normalizer that makes at most 1048640 bytes of this text");
  json prepends = json::array();
  for (int i = 0; i < 30; ++i)
    prepends.push_back({{"type", "Prepend"}, {"prepend", std::string(60'000, 'b')}});
  expect_part(normalizer(prepends), "a normalizer that makes at most 1048640 bytes");
  EXPECT_EQ(normalizer(json::array({replace_json("a", std::string(1000, 'b'))})), "accepted");
  // Each piece between added tokens is short, and all together are not.
  const auto pieces = [](json& j) {
    j["normalizer"] = replace_json("a", std::string(10'000, 'a'));
    j["added_tokens"].push_back(added_token(static_cast<int>(j["model"]["vocab"].size()), "<x>"));
  };
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a<x>";
  json fresh = byte_bpe_json();
  fresh["added_tokens"] = json::array();
  expect_part(refusal(fresh, pieces, text), "a normalizer that makes at most 1304576 bytes");

  json decoder = byte_bpe_json();
  decoder["decoder"] = {{"type", "Sequence"}, {"decoders", twelve}};
  const JsonTokenizer tokenizer = JsonTokenizer::from_json(decoder.dump(), "t.json");
  const std::int32_t ids[] = {*tokenizer.id_of("a")};
  try {
    tokenizer.decode(ids);
    FAIL();
  } catch (const FileError& error) {
    expect_part(error.what(), "expected a decoder that makes at most 1048640 bytes");
  }
}

TEST(BadTokenizerJson, TemplatesAndPaddingAreBounded) {
  const auto with = [](int ids, const char* kind, int slots) {
    return refusal(wordpiece_json(), [&](json& j) {
      json& token = j["post_processor"]["special_tokens"]["[SEP]"];
      token["ids"] = std::vector<int>(static_cast<std::size_t>(ids), 2);
      token["tokens"] = std::vector<std::string>(static_cast<std::size_t>(ids), "[SEP]");
      const bool text = std::string(kind) == "Sequence";
      for (int i = 0; i < slots; ++i)
        j["post_processor"]["single"].push_back(slot(kind, text ? "A" : "[SEP]", 0));
    });
  };
  expect_part(with(3000, "SpecialToken", 3000), "expected at most 65536 ids in its templates, got more");
  expect_part(with(1, "Sequence", 3000), "post_processor.single: expected at most 16 texts, got more");
  EXPECT_EQ(with(100, "SpecialToken", 100), "accepted");
  const auto padded = [](const json& strategy, int multiple) {
    return refusal(wordpiece_json(), [&](json& j) {
      j["padding"] = {{"strategy", strategy}, {"direction", "Right"}, {"pad_to_multiple_of", multiple},
                      {"pad_id", 3},          {"pad_type_id", 0},     {"pad_token", "[PAD]"}};
    });
  };
  expect_part(padded({{"Fixed", 1 << 21}}, 8),
              "padding.strategy.Fixed: expected a whole number from 0 to 1048576");
  expect_part(padded("BatchLongest", 1 << 21),
              "padding.pad_to_multiple_of: expected a whole number from 0 to");
  EXPECT_EQ(padded({{"Fixed", 1 << 20}}, 8), "accepted");
}

TEST(BadTokenizerJson, TokensHaveALongestLength) {
  const std::string longest(4096, 'a'), longer(4097, 'a');
  const auto piece = [](const json& of, const std::string& token) {
    return refusal(of, [&](json& j) {
      json& vocab = j["model"]["vocab"];
      if (vocab.is_array())
        vocab.push_back(json::array({token, -1.0}));
      else
        vocab[token] = vocab.size();
      j["added_tokens"] = json::array();
    });
  };
  for (const json& of : {wordpiece_json(), byte_bpe_json(), unigram_json()}) {
    expect_part(piece(of, longer), "expected a token of at most 4096 bytes, got 4097");
    EXPECT_EQ(piece(of, longest), "accepted");
  }
  const auto added = [](const std::string& token, const json& normalizer) {
    return refusal(wordpiece_json(), [&](json& j) {
      j["added_tokens"] = {added_token(9, token, {{"normalized", true}})};
      j["normalizer"] = normalizer;
    });
  };
  expect_part(added(longer, nullptr), "added_tokens[0].content: expected at most 4096 bytes, got 4097");
  expect_part(added("ab", replace_json("a", longest)),
              "added_tokens[0].content: expected a normalised spelling of at most 4096 bytes, got 4097");
  EXPECT_EQ(added(longest, nullptr), "accepted");
  expect_part(refusal(wordpiece_json(), [](json& j) { j["model"]["max_input_chars_per_word"] = 1 << 17; }),
              "model.max_input_chars_per_word: expected a whole number from 0 to 65536, got 131072");
}

// Truncations, changed and repeated bytes: each file is read or refused, and nothing else happens. FOVEA_FUZZ
// is the number of files of each type, such as 1000000.
TEST(BadTokenizerJson, Fuzz) {
  const int rounds = files::fuzz_count(1500);
  PhiloxStream random(20261123);
  for (const json& good : {wordpiece_json(), byte_bpe_json(), char_bpe_json(), unigram_json()}) {
    json with_map = good;
    if (good["normalizer"].is_null())
      with_map["normalizer"] = {{"type", "Precompiled"},
                                {"precompiled_charsmap", charsmap_base64('A', "ab")}};
    const std::string whole = with_map.dump();
    int read = 0, refused = 0;
    for (int i = 0; i < rounds; ++i) {
      std::string bytes = whole;
      const auto place = [&] { return random.next_below(static_cast<std::uint32_t>(bytes.size())); };
      const std::uint32_t kind = random.next_below(4);
      if (kind == 0) bytes.resize(place());
      if (kind == 1) bytes[place()] = static_cast<char>(random.next_below(256));
      if (kind == 2) bytes.erase(place(), 1 + random.next_below(12));
      if (kind == 3) {
        const std::string part = bytes.substr(place(), 1 + random.next_below(40));
        bytes.insert(place(), part);
      }
      try {
        const JsonTokenizer tokenizer = JsonTokenizer::from_json(bytes, "t.json");
        tokenizer.decode(tokenizer.encode("un ab A\xC3\xA9 <mask>", "c").ids);
        JsonTokenizer::from_json(tokenizer.to_json(), "again");
        ++read;
      } catch (const Error&) {
        ++refused;
      }
    }
    EXPECT_GT(read, 0);
    EXPECT_GT(refused, 0);
  }
}

}  // namespace
}  // namespace fovea::text
