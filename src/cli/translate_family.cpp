#include "cli/translate_family.h"

#include <algorithm>
#include <filesystem>

#include "cli/coder.h"
#include "fovea/core/error.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {
namespace {

// Weights over words: of each target word the mean of its ids, of each source word the sum.
text::AlignmentWeights word_weights(const models::Hypothesis& hypothesis, const Words& source,
                                    const Words& target) {
  const auto special = static_cast<std::int32_t>(source.labels.size());
  text::AlignmentWeights words{target.labels.size(), source.labels.size() + 1, {}};
  words.weights.assign(words.target_len * words.source_len, 0.0f);
  std::vector<float> counts(words.target_len);
  for (std::size_t row = 0; row < target.word_of.size(); ++row) {
    if (target.word_of[row] < 0) continue;
    const auto of = static_cast<std::size_t>(target.word_of[row]);
    ++counts[of];
    for (std::size_t column = 0; column < hypothesis.alignment[row].size(); ++column) {
      const std::int32_t word = column < source.word_of.size() ? source.word_of[column] : -1;
      words.weights[of * words.source_len + static_cast<std::size_t>(word < 0 ? special : word)] +=
          hypothesis.alignment[row][column];
    }
  }
  for (std::size_t i = 0; i < words.weights.size(); ++i)
    words.weights[i] /= std::max(counts[i / words.source_len], 1.0f);
  return words;
}

train::Translation described(const Coder& coder, const std::string& line,
                             const models::Hypothesis& hypothesis) {
  train::Translation result{
      coder.text(hypothesis.ids), hypothesis.log_probability, hypothesis.score, {}, {}, {}};
  if (hypothesis.alignment.empty()) return result;
  Words source = coder.words_of_line(line), target = coder.words(hypothesis.ids);
  result.weights = word_weights(hypothesis, source, target);
  result.source_words = std::move(source.labels);
  result.source_words.push_back("</s>");
  result.target_words = std::move(target.labels);
  return result;
}

}  // namespace

bool is_family_translator(const std::string& folder) {
  std::error_code error;
  const bool has_tokenizer = text::has_json_tokenizer(folder) || text::MarianTokenizer::is_in(folder);
  if (!has_tokenizer || !std::filesystem::exists(models::config_path(folder), error)) return false;
  return models::family_kind(models::ModelFolder(folder).config()) == models::FamilyKind::translator;
}

std::vector<std::vector<train::Translation>> translate_family(const std::string& path,
                                                              const std::vector<std::string>& lines,
                                                              models::DecodeOptions options,
                                                              autograd::WeightType weights) {
  const models::ModelFolder folder(path);
  const models::GenerationDefaults defaults = folder.generation();
  if (!defaults.start_id || defaults.stop_ids.size() != 1)
    throw FileError(path, -1,
                    "does not say which id the decoder reads first, decoder_start_token_id, and which one id "
                    "ends a text, eos_token_id");
  options.bos = *defaults.start_id;
  options.eos = defaults.stop_ids.front();
  options.source_end = models::SourceEnd::as_given;  // with the ids that the tokenizer puts around it
  options.never.emplace();                           // BART begins with the id that ends a text
  const auto model = folder.sequence_to_sequence();
  model->parameters().pack(weights);
  const std::unique_ptr<Coder> coder = read_coder(folder, model->vocabulary());
  std::vector<std::vector<train::Translation>> translations;
  for (const std::string& line : lines) {
    const Ids source = coder->begun(line);
    std::vector<train::Translation>& of_line = translations.emplace_back();
    const bool no_text = source.empty() || (source.size() == 1 && source.front() == options.eos);
    if (line.empty() || no_text) {
      of_line.emplace_back();
      continue;
    }
    const auto decoded = models::decode(*model, {source}, options);
    for (const models::Hypothesis& hypothesis : decoded.front())
      of_line.push_back(described(*coder, line, hypothesis));
  }
  return translations;
}

}  // namespace fovea::cli
