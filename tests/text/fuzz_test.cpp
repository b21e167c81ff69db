// Damaged files: every reader either succeeds or throws fovea::Error. Meant to be run under the address and
// undefined-behaviour sanitizers as well.
#include <gtest/gtest.h>

#include <functional>

#include "files/fuzz_count.h"
#include "fovea/core/error.h"
#include "fovea/core/philox.h"
#include "fovea/text/alignment.h"
#include "fovea/text/bleu.h"
#include "fovea/text/csv.h"
#include "fovea/text/gettext.h"
#include "fovea/text/labelled.h"
#include "fovea/text/tokenizer.h"
#include "text/mo_file.h"
#include "text/scratch.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

std::string random_bytes(PhiloxStream& random, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(random.next_below(256)));
  return bytes;
}

// Truncations, changed bytes, inserted and removed runs of a good file, and plain noise.
std::string damaged(const std::string& good, PhiloxStream& random) {
  std::string bytes = good;
  const auto place = [&] { return random.next_below(static_cast<std::uint32_t>(bytes.size())); };
  switch (random.next_below(5)) {
    case 0:
      bytes.resize(place());
      break;
    case 1:
      for (std::uint32_t i = 0, count = 1 + random.next_below(8); i < count; ++i) {
        bytes[place()] = static_cast<char>(random.next_below(256));
      }
      break;
    case 2:
      bytes.insert(place(), random_bytes(random, 1 + random.next_below(20)));
      break;
    case 3:
      bytes.erase(place(), 1 + random.next_below(20));
      break;
    default:
      bytes = random_bytes(random, random.next_below(400));
      break;
  }
  return bytes;
}

struct Tally {
  int read = 0, refused = 0;
};

Tally hammer(const std::string& good, int times, const std::function<void(const std::string&)>& read) {
  PhiloxStream random(20260101);
  Tally tally;
  for (int i = 0, count = files::fuzz_count(times); i < count; ++i) {
    try {
      read(damaged(good, random));
      ++tally.read;
    } catch (const Error&) {
      ++tally.refused;
    }
  }
  return tally;
}

// Otherwise the damage was too small, or always the same.
void expect_some_of_each(const Tally& tally) {
  EXPECT_GT(tally.read, 0);
  EXPECT_GT(tally.refused, 0);
}

TEST(Fuzz, Mo) {
  const std::string good = mo_file({{"", mo_header()},
                                    {"Open", "Ouvrir"},
                                    {std::string("a\0b", 3), std::string("c\0d", 3)},
                                    {"menu\4_File", "_Fichier"},
                                    {"two\n\nparts", "deux\n\nparties"}});
  const Scratch scratch;
  const Tally tally = hammer(good, 3000, [&](const std::string& bytes) {
    scratch.write("fr/LC_MESSAGES/a.mo", bytes);
    gettext_corpus({.language = "fr", .roots = {scratch.folder()}});
    parse_mo(bytes, "a.mo");
  });
  expect_some_of_each(tally);
}

TEST(Fuzz, TsvAndPharaoh) {
  const Scratch scratch;
  const Tally tally =
      hammer("the cat\tle chat\t0-0 1-1\r\nété\tsummer\t0-0\n", 1000, [&](const std::string& bytes) {
        const auto file = scratch.write("f", bytes);
        read_tsv(file, {.bad_line = BadLine::skip_and_count});
        read_parallel_files(file, file, {.bad_line = BadLine::skip_and_count});
        read_tsv(file);
      });
  expect_some_of_each(tally);
  EXPECT_GT(hammer("0-0 1-2 13-4\n\n5-5\n", 1000,
                   [&](const std::string& bytes) { read_pharaoh(scratch.write("p", bytes)); })
                .refused,
            0);
  EXPECT_GT(hammer("1 1 1 S\n2 3 4 P 0.5\n", 1000,
                   [&](const std::string& bytes) { read_naacl_alignments(scratch.write("n", bytes)); })
                .refused,
            0);
}

// Whatever the bytes were, the result is text (other code relies on that).
void expect_text(const std::string& text) {
  EXPECT_EQ(find_invalid_utf8(text), std::string::npos) << ::testing::PrintToString(text);
  EXPECT_EQ(text.find('\0'), std::string::npos) << ::testing::PrintToString(text);
}

TEST(Fuzz, LabelledLines) {
  const Scratch scratch;
  const Tally tally = hammer("4 Where is Rome ?\r\n\n0 café\n", 1000, [&](const std::string& bytes) {
    for (const LabelledLine& line : read_labelled_lines(scratch.write("l", bytes))) {
      expect_text(line.label);
      EXPECT_FALSE(line.label.empty() || line.words.empty());
      for (const std::string& word : line.words) expect_text(word);
    }
  });
  expect_some_of_each(tally);
}

TEST(Fuzz, Conll) {
  const Scratch scratch;
  const std::string good = "-DOCSTART- -X- O\n\nJohn NNP I-PER\r\nran VBD O\n\ndéjà . B-X\n";
  const Tally tally = hammer(good, 1000, [&](const std::string& bytes) {
    for (const TaggedSentence& sentence : read_conll(scratch.write("c", bytes))) {
      EXPECT_FALSE(sentence.words.empty());
      EXPECT_EQ(sentence.words.size(), sentence.tags.size());
      for (const std::string& word : sentence.words) expect_text(word);
      for (const std::string& tag : sentence.tags) expect_text(tag);
    }
  });
  expect_some_of_each(tally);
}

TEST(Fuzz, Csv) {
  const Scratch scratch;
  const std::string good = "\xEF\xBB\xBFtime,\"a \"\"b\"\", °C\",x\r\n1,2.5,\n\n2,\"-3\",1e3\n";
  const Tally tally = hammer(good, 1000, [&](const std::string& bytes) {
    CsvReader reader(scratch.write("t", bytes));
    std::size_t columns = 0;
    while (reader.next()) {
      if (columns == 0) columns = reader.cells().size();
      EXPECT_EQ(reader.cells().size(), columns);
      for (const std::string& cell : reader.cells()) {
        expect_text(cell);
        finite_number(cell);
      }
    }
    EXPECT_GT(columns, 0u);
  });
  expect_some_of_each(tally);
}

TEST(Fuzz, VocabularyJson) {
  const Scratch scratch;
  const std::string good = R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":4,"été":5})";
  const auto load = [&](const std::string& bytes) {
    scratch.write("vocab.json", bytes);
    const auto tokenizer = load_tokenizer(scratch.folder());
    tokenizer->decode(tokenizer->encode("a été b"));
  };
  EXPECT_NO_THROW(load(good));
  EXPECT_GT(hammer(good, 1000, load).refused, 0);
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{}"), std::string("null"), std::string(1 << 20, '['),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":5})"),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":4,"b":4})"),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":3,"</s>":2})"),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":4.5})"),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":-1})"),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":18446744073709551615})"),
        std::string(R"({"<pad>":0,"<unk>":1,"<s>":2,"</s>":3,"a":{"b":4}})")}) {
    EXPECT_THROW(load(bad), FileError) << bad.substr(0, 80);
  }
}

// A number that overflows once was reported by an exception of the JSON library, which does not name the
// file.
TEST(Fuzz, VocabularyErrorsNameFileAndPlace) {
  const Scratch scratch;
  const std::string special = "{\"<pad>\":0,\"<unk>\":1,\"<s>\":2,\n\"</s>\":3,";
  const auto says = [&](const std::string& rest, const std::string& words) {
    const auto file = scratch.write("vocab.json", special + rest);
    try {
      Vocabulary::load(file);
      ADD_FAILURE() << rest.substr(0, 80) << " was accepted";
    } catch (const FileError& error) {
      EXPECT_EQ(error.file(), file.string());
      const std::string what = error.what();
      EXPECT_NE(what.find(words), std::string::npos) << what;
      EXPECT_LT(what.size(), 1000u);
    }
  };
  says("\"a\":1e999}",
       "(line 2, column 14): the id of 'a': expected a whole number of at least 0, got 1e999");
  says("\"a\":4", "(line 2, column 15): syntax error: expected ',' or '}', got the end of the text");
  says("\"a\":\"b\"}", "the id of 'a': expected a whole number of at least 0, got a string");
  says("\"a\":5}", "the ids of 5 pieces are not 0..4, each once: one is 5");
  says("\"a\":4,\"a\":5}", "\"a\" is there twice");
  says("\"a\":3}", "the id of 'a': the ids are not 0, 1, 2 and so on, each once: 3 is there twice");
  says("\"a\":4000000000}", "4000000000 is larger than there are pieces");
  says("\"" + std::string(100'000, 'x') + "\":-1}", "… (100,000 characters)");
  says("\"a\":" + std::string(100'000, '9') + "}", "… (100,000 characters)");
}

TEST(Fuzz, SentencePieceModel) {
  const std::vector<std::string> lines{"the cat sat on the mat", "le chat était assis sur le tapis"};
  const std::string good = SentencePieceTokenizer::train(lines, {.vocabulary_size = 40})->serialized();
  const auto load = [&](const std::string& bytes) {
    const auto tokenizer = SentencePieceTokenizer::from_bytes(bytes, "spm.model");
    tokenizer->decode(tokenizer->encode("the cat, le chat"));
  };
  EXPECT_NO_THROW(load(good));
  const Tally tally = hammer(good, 1000, load);
  EXPECT_GT(tally.read, 0) << "a changed score or letter still makes a model";
  EXPECT_GT(tally.refused, 0);
  EXPECT_THROW(load(""), FileError);
}

// A model with a normalisation trie, as other programs train it; here the trie points outside itself.
TEST(Fuzz, SentencePieceNormalisationTrie) {
  const std::vector<std::string> lines{"the cat sat on the mat"};
  const std::string good = SentencePieceTokenizer::train(lines, {.vocabulary_size = 30})->serialized();
  const auto with_trie = [&](std::uint32_t first_unit, char last) {
    std::string blob;
    const auto put = [&](std::uint32_t value) {
      for (int i = 0; i < 4; ++i) blob.push_back(static_cast<char>(value >> 8 * i));
    };
    put(1024);
    put(first_unit);
    for (int i = 1; i < 256; ++i) put(0x80000000u);
    blob += std::string("x") + last;
    // Field 3 (normalizer_spec) with field 2 (precompiled_charsmap); a later occurrence of a message is
    // merged.
    const auto field = [](char key, const std::string& payload) {
      std::string bytes(1, key);
      std::size_t size = payload.size();
      for (; size >= 128; size >>= 7) bytes.push_back(static_cast<char>(size | 128));
      bytes.push_back(static_cast<char>(size));
      return bytes + payload;
    };
    return good + field(0x1A, field(0x12, blob));
  };
  EXPECT_NO_THROW(SentencePieceTokenizer::from_bytes(with_trie(0, '\0'), "m")->encode("the cat"));
  expect_some_of_each(hammer(with_trie(0, '\0'), 1000, [](const std::string& bytes) {
    SentencePieceTokenizer::from_bytes(bytes, "m")->encode("the cat");
  }));
  EXPECT_THROW(SentencePieceTokenizer::from_bytes(with_trie(0x7FFFFC00u, '\0'), "m"), FileError);
  EXPECT_THROW(SentencePieceTokenizer::from_bytes(with_trie(0, 'y'), "m"), FileError);
  EXPECT_THROW(SentencePieceTokenizer::from_bytes(with_trie(0x80000000u | 5u << 10 | 1u << 20, '\0'), "m"),
               FileError);
}

TEST(Fuzz, BleuTakesAnyBytes) {
  PhiloxStream random(7);
  for (int i = 0; i < 300; ++i) {
    const std::vector<std::string> hypothesis{random_bytes(random, random.next_below(60))};
    const std::vector<std::string> reference{random_bytes(random, random.next_below(60))};
    const double score = bleu(hypothesis, reference, {.letter_case = LetterCase::lower}).score;
    EXPECT_TRUE(score >= 0 && score <= 100.0000001);
  }
}

}  // namespace
}  // namespace fovea::text
