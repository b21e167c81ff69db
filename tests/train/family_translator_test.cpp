// A folder of a translator of another library: texts in, texts out.
#include "fovea/train/family_translator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/scratch.h"
#include "fovea/core/error.h"
#include "models/random_family.h"

namespace fovea::train {
namespace {

using Ids = std::vector<std::int32_t>;

class FamilyTranslators : public files::ScratchFolder {
 protected:
  /// A BART with random weights whose vocabulary is eight words between blanks; `generation` is its
  /// generation_config.json.
  models::ModelFolder folder(const std::string& generation = "{}") {
    write("bart/config.json", R"({"model_type": "bart", "architectures": ["BartForConditionalGeneration"],
      "vocab_size": 12, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
      "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 16,
      "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 1,
      "task_specific_params": {"short": {"prefix": "a b ", "max_length": 4}}})");
    models::save_random_model(path("bart"), models::ModelFolder(path("bart")).config());
    write("bart/generation_config.json",
          R"({"eos_token_id": 1, "decoder_start_token_id": 1, "pad_token_id": 0})");
    if (generation != "{}") write("bart/generation_config.json", generation);
    write("bart/tokenizer.json",
          R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
      "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
      "decoder": null,
      "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<pad>": 0, "</s>": 1, "<s>": 2, "<unk>": 3,
        "a": 4, "b": 5, "c": 6, "d": 7, "e": 8, "f": 9, "g": 10, "h": 11}}})");
    return models::ModelFolder(path("bart"));
  }

  static std::vector<std::vector<Translation>> all(const FamilyTranslator& translator,
                                                   const std::vector<std::string>& lines) {
    std::vector<std::vector<Translation>> result;
    translator.translate(lines, [&](std::size_t number, const std::vector<Translation>& texts,
                                    const std::exception_ptr& error) {
      EXPECT_EQ(number, result.size());  // in the order of the lines
      EXPECT_FALSE(error);
      result.push_back(texts);
    });
    return result;
  }
};

std::string spelt(const Ids& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id == 1) break;
    const std::vector<std::string> names{"<pad>", "</s>", "<s>", "<unk>", "a", "b",
                                         "c",     "d",    "e",   "f",     "g", "h"};
    text += (text.empty() ? "" : " ") + names[static_cast<std::size_t>(id)];
  }
  return text;
}

Ids ids_of(const std::string& line) {
  Ids ids;
  for (const char c : line) {
    if (c != ' ') ids.push_back(c - 'a' + 4);
  }
  ids.push_back(1);
  return ids;
}

const std::vector<std::string> kLines{"a b c", "", "h", "d e f g a b", "b b", "g f e d c b a", "c"};

// The texts are those of a search for each line alone, for any size of batches.
TEST_F(FamilyTranslators, TextsAreThoseOfTheSearch) {
  const models::ModelFolder read = folder(R"({"eos_token_id": 1, "decoder_start_token_id": 1, "num_beams": 3,
    "length_penalty": 0.5, "no_repeat_ngram_size": 2, "max_new_tokens": 6})");
  const auto model = read.sequence_to_sequence();
  const models::TranslatorBeams beams = read.translator_beams(read.generation());
  for (const std::int64_t batch : {1, 2, 100}) {
    const FamilyTranslator translator(read, {.n_best = 2, .batch = batch});
    const auto found = all(translator, kLines);
    ASSERT_EQ(found.size(), kLines.size());
    for (std::size_t i = 0; i < kLines.size(); ++i) {
      if (kLines[i].empty()) {
        ASSERT_EQ(found[i].size(), 1u);
        EXPECT_EQ(found[i][0].text, "");
        continue;
      }
      const auto expected = models::beam_search(*model, {ids_of(kLines[i])}, beams)[0];
      ASSERT_EQ(found[i].size(), 2u);
      for (std::size_t n = 0; n < 2; ++n) {
        EXPECT_EQ(found[i][n].text, spelt(expected[n].ids)) << kLines[i];
        EXPECT_NEAR(found[i][n].score, expected[n].score, 1e-5);
        EXPECT_TRUE(found[i][n].weights.weights.empty());
      }
    }
  }
}

TEST_F(FamilyTranslators, WeightsAreOverWords) {
  const FamilyTranslator translator(folder(), {.max_new = 5, .alignments = true});
  for (const std::vector<Translation>& texts : all(translator, {"a b c", "h"})) {
    const Translation& one = texts.at(0);
    ASSERT_FALSE(one.weights.weights.empty());
    EXPECT_EQ(one.source_words.back(), "</s>");
    EXPECT_EQ(one.weights.source_len, one.source_words.size());
    EXPECT_EQ(one.weights.target_len, one.target_words.size());
    for (std::size_t row = 0; row < one.weights.target_len; ++row) {
      double sum = 0.0;
      for (std::size_t column = 0; column < one.weights.source_len; ++column)
        sum += one.weights.at(row, column);
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
}

TEST_F(FamilyTranslators, ATaskHasAPrefixAndALength) {
  const models::ModelFolder read = folder();
  const FamilyTranslator task(read, {.task = "short"});
  const FamilyTranslator plain(read, {.prefix = "a b ", .max_new = 3});
  const auto of_task = all(task, kLines), of_plain = all(plain, kLines);
  const auto without = all(FamilyTranslator(read, {.max_new = 3}), kLines);
  for (std::size_t i = 0; i < kLines.size(); ++i) {
    EXPECT_EQ(of_task[i][0].text, of_plain[i][0].text);
    EXPECT_EQ(of_task[i][0].score, of_plain[i][0].score);
    EXPECT_EQ(of_task[i][0].score == without[i][0].score, kLines[i].empty());
  }
  EXPECT_THROW(FamilyTranslator(read, {.task = "long"}), FileError);
}

// The language stands before a text and its end (NLLB) or behind both (the first mBART).
TEST_F(FamilyTranslators, LanguagesAreTokensOfTheTokenizer) {
  const models::ModelFolder read = folder();
  const auto model = read.sequence_to_sequence();
  const auto tokenizer_with = [&](const std::string& single) {
    write("bart/tokenizer.json", R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
      {"id": 10, "content": "en_XX", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
       "special": true},
      {"id": 2, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
       "special": true},
      {"id": 11, "content": "__de__", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true}],
      "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
      "post_processor": {"type": "TemplateProcessing", "single": [)" +
                                     single + R"(],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]},
                           "en_XX": {"id": "en_XX", "ids": [10], "tokens": ["en_XX"]}}},
      "decoder": null,
      "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<pad>": 0, "</s>": 1, "<s>": 2, "<unk>": 3,
        "a": 4, "b": 5, "c": 6, "d": 7, "e": 8, "f": 9}}})");
  };
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})",
                    end = R"({"SpecialToken": {"id": "</s>", "type_id": 0}})",
                    language = R"({"SpecialToken": {"id": "en_XX", "type_id": 0}})";
  const auto score_of = [&](const Ids& source, std::optional<std::int32_t> first) {
    models::TranslatorBeams beams = read.translator_beams(read.generation());
    beams.length_of = models::output_length(5, 2.0, 16);
    beams.search.rules.forced_bos = first;
    return models::beam_search(*model, {source}, beams)[0][0].score;
  };
  const auto score_by = [&](const FamilyTranslatorOptions& options) {
    return all(FamilyTranslator(read, options), {"a b"})[0][0].score;
  };
  for (const bool before : {true, false}) {
    tokenizer_with(before ? language + "," + text + "," + end : text + "," + end + "," + language);
    const auto source = [&](std::int32_t id) { return before ? Ids{id, 4, 5, 1} : Ids{4, 5, 1, id}; };
    EXPECT_NEAR(score_by({.max_new = 5}), score_of(source(10), {}), 1e-5);
    EXPECT_NEAR(score_by({.source_language = "de", .max_new = 5}), score_of(source(11), {}), 1e-5);
    EXPECT_NEAR(score_by({.source_language = "de", .target_language = "en_XX", .max_new = 5}),
                score_of(source(11), 10), 1e-5);
    EXPECT_NE(score_of(source(11), 10), score_of(source(10), 11));
    // The first mBART's decoder reads the language and is not forced to write it.
    write("bart/generation_config.json",
          R"({"eos_token_id": 1, "decoder_start_token_id": 10, "pad_token_id": 0})");
    models::TranslatorBeams beams = read.translator_beams(read.generation());
    beams.length_of = models::output_length(5, 2.0, 16);
    beams.start = 11;
    EXPECT_NEAR(score_by({.target_language = "de", .max_new = 5}),
                models::beam_search(*model, {source(10)}, beams)[0][0].score, 1e-5);
    write("bart/generation_config.json",
          R"({"eos_token_id": 1, "decoder_start_token_id": 1, "pad_token_id": 0})");
    EXPECT_EQ(all(FamilyTranslator(read), {" "})[0][0].text, "");  // a language alone is no text
    for (const char* unknown : {"fr", "a", "</s>", "<s>"})
      EXPECT_THROW(FamilyTranslator(read, {.target_language = unknown}), InvalidArgument) << unknown;
  }
  tokenizer_with(text + "," + end);
  EXPECT_THROW(FamilyTranslator(read, {.source_language = "de"}), InvalidArgument);
}

// A line that is too long is an error of its own, or it is cut: its end stays.
TEST_F(FamilyTranslators, LongLinesAreRefusedOrCut) {
  const models::ModelFolder read = folder();
  std::string line = "a";
  for (int i = 0; i < 19; ++i) line += " b";
  std::vector<std::string> errors;
  FamilyTranslator(read).translate(
      {"a", line, "b"},
      [&](std::size_t number, const std::vector<Translation>& texts, const std::exception_ptr& error) {
        EXPECT_EQ(number, errors.size());
        EXPECT_EQ(texts.empty(), error != nullptr);
        errors.emplace_back();
        try {
          if (error) std::rethrow_exception(error);
        } catch (const InvalidArgument& caught) {
          errors.back() = caught.expected() + " " + caught.got();
        }
      });
  EXPECT_EQ(errors, (std::vector<std::string>{"", "at most the 16 ids that the model reads 21", ""}));
  const FamilyTranslator cut(read, {.max_new = 4, .long_texts = LongTexts::cut});
  EXPECT_EQ(all(cut, {line})[0][0].text, all(cut, {line.substr(0, 2 * 15 - 1)})[0][0].text);
}

TEST_F(FamilyTranslators, BadOptionsAreRefused) {
  const models::ModelFolder read = folder();
  EXPECT_THROW(FamilyTranslator(read, {.beams = 2, .n_best = 3}), InvalidArgument);
  EXPECT_THROW(FamilyTranslator(read, {.n_best = 0}), InvalidArgument);
  EXPECT_THROW(FamilyTranslator(read, {.batch = 0}), InvalidArgument);
  EXPECT_TRUE(FamilyTranslator::is_in(path("bart")));
  EXPECT_FALSE(FamilyTranslator::is_in(path("nothing")));
  std::filesystem::remove(path("bart/tokenizer.json"));
  EXPECT_FALSE(FamilyTranslator::is_in(path("bart")));
}

// No id may stand twice, so that eleven can be written at most. A longer line asks for twelve and fails, and
// the other lines of its batch go on.
TEST_F(FamilyTranslators, ALineThatFailsLeavesTheOthers) {
  const models::ModelFolder read = folder(R"({"eos_token_id": 1, "decoder_start_token_id": 1, "num_beams": 2,
    "no_repeat_ngram_size": 1, "suppress_tokens": [1]})");
  const FamilyTranslator translator(read, {.length_factor = 0.4});
  const std::vector<std::string> lines{"a", "a b c d e", "", "b c"};
  std::vector<int> failed;
  std::vector<std::string> texts;
  translator.translate(
      lines, [&](std::size_t number, const std::vector<Translation>& found, const std::exception_ptr& error) {
        EXPECT_EQ(found.empty(), static_cast<bool>(error));
        if (error) failed.push_back(static_cast<int>(number));
        texts.push_back(error ? "" : found[0].text);
      });
  EXPECT_EQ(failed, std::vector<int>{1});
  for (const std::size_t alone : {0, 2, 3})
    EXPECT_EQ(all(translator, {lines[alone]})[0][0].text, texts[alone]);
}

// do_sample of the folder draws, and the options say otherwise. Each line has the draws that it has alone.
TEST_F(FamilyTranslators, DrawAsTheFolderOrTheOptionsSay) {
  const auto texts = [&](const models::ModelFolder& read, FamilyTranslatorOptions options) {
    std::string joined;
    options.max_new = 8;
    for (const std::vector<Translation>& found : all(FamilyTranslator(read, options), kLines))
      joined += found[0].text + "|";
    return joined;
  };
  const models::ModelFolder plain = folder();
  const std::string best = texts(plain, {.beams = 2}),
                    drawn = texts(plain, {.beams = 2, .temperature = 1.0, .seed = 3});
  EXPECT_NE(drawn, best);
  EXPECT_EQ(drawn, texts(plain, {.beams = 2, .temperature = 1.0, .seed = 3, .batch = 1}));
  EXPECT_NE(drawn, texts(plain, {.beams = 2, .temperature = 1.0, .seed = 4}));
  EXPECT_THROW(FamilyTranslator(plain, {.seed = 3}), InvalidArgument);
  EXPECT_THROW(FamilyTranslator(plain, {.temperature = 0.0, .seed = 3}), InvalidArgument);
  const models::ModelFolder draws = folder(R"({"eos_token_id": 1, "decoder_start_token_id": 1, "num_beams": 2,
    "do_sample": true, "temperature": 1.0, "top_k": 0})");
  EXPECT_EQ(texts(draws, {.seed = 3}), drawn);
  EXPECT_EQ(texts(draws, {.temperature = 0.0}), best);
  EXPECT_NE(texts(draws, {.seed = 3}), texts(draws, {.temperature = 0.2, .seed = 3}));
}

// Once it is cancelled no line is handed on.
TEST_F(FamilyTranslators, EndsWhereItIsCancelled) {
  std::atomic<int> asked = 0;
  const FamilyTranslator translator(folder(), {.batch = 1, .cancelled = [&] { return ++asked > 2; }});
  int calls = 0;
  translator.translate(
      kLines, [&](std::size_t, const std::vector<Translation>&, const std::exception_ptr&) { ++calls; });
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace fovea::train
