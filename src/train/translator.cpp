#include "fovea/train/translator.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <sstream>

#include "fovea/core/profile.h"
#include "fovea/models/batches.h"
#include "fovea/models/model_folder.h"

namespace fovea::train {

Translator::Translator(std::unique_ptr<models::SequenceToSequence> model,
                       std::unique_ptr<text::Tokenizer> tokenizer)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)) {}

Translator Translator::load(const std::string& folder, autograd::WeightType weights) {
  // The model first: its error says what kind of model the folder has.
  std::unique_ptr<models::SequenceToSequence> model =
      models::ModelFolder(folder).sequence_to_sequence(weights);
  Translator translator(std::move(model), text::load_tokenizer(folder));
  if (translator.model_->vocabulary() != translator.tokenizer_->size()) {
    throw FileError(folder, -1,
                    "the model has " + std::to_string(translator.model_->vocabulary()) +
                        " words, its tokenizer " + std::to_string(translator.tokenizer_->size()));
  }
  return translator;
}

std::vector<std::vector<Translation>> Translator::translate(const std::vector<std::string>& lines,
                                                            const models::DecodeOptions& options,
                                                            std::size_t batch, models::DecodeStats* stats) {
  std::vector<std::vector<Translation>> result(lines.size(), std::vector<Translation>(1));
  std::vector<std::vector<std::int32_t>> encoded;
  std::vector<std::int64_t> lengths;
  for (const std::string& line : lines) {
    encoded.push_back(tokenizer_->encode(line));
    lengths.push_back(std::ssize(encoded.back()));
  }
  std::vector<models::DecodeStats> parts(lines.size());  // of a batch, at the place of its first line
  models::for_batches(lengths, std::max<std::int64_t>(static_cast<std::int64_t>(batch), 1),
                      [&](std::span<const std::size_t> own) {
                        std::vector<std::vector<std::int32_t>> sources;
                        for (const std::size_t i : own) sources.push_back(encoded[i]);
                        const auto decoded = models::decode(*model_, sources, options, &parts[own.front()]);
                        for (std::size_t n = 0; n < own.size(); ++n) {
                          std::vector<Translation>& translations = result[own[n]];
                          translations.clear();
                          for (const models::Hypothesis& hypothesis : decoded[n])
                            translations.push_back(describe(lines[own[n]], encoded[own[n]], hypothesis));
                        }
                      });
  if (stats) {
    *stats = {};
    for (const models::DecodeStats& part : parts) {
      stats->steps += part.steps;
      stats->tokens += part.tokens;
      stats->score_evaluations += part.score_evaluations;
      stats->peak_state_bytes = std::max(stats->peak_state_bytes, part.peak_state_bytes);
    }
  }
  return result;
}

namespace {

// Pieces as they stand in the line: a word that the vocabulary lacks is shown as itself, not as <unk>.
std::vector<std::string> pieces_of(const text::Tokenizer& tokenizer, const std::string& line,
                                   const std::vector<std::int32_t>& ids) {
  if (tokenizer.kind() == "whitespace") {
    std::istringstream stream(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    if (words.size() + 1 == ids.size()) {
      words.push_back(tokenizer.pieces(std::span(ids).last(1))[0]);
      return words;
    }
  }
  return tokenizer.pieces(ids);
}

}  // namespace

Translation Translator::describe(const std::string& line, const std::vector<std::int32_t>& source,
                                 const models::Hypothesis& hypothesis) const {
  static constexpr ProfileLabel label{"a translation and its alignment", ProfilePart::data};
  const ProfileSpan span(label);
  std::vector<std::int32_t> source_ids = source;
  source_ids.push_back(tokenizer_->eos_id());
  const std::vector<std::string> source_pieces = pieces_of(*tokenizer_, line, source_ids),
                                 target_pieces = tokenizer_->pieces(hypothesis.ids);
  Translation translation{
      tokenizer_->decode(hypothesis.ids), hypothesis.log_probability,       hypothesis.score,
      tokenizer_->words(source_pieces),   tokenizer_->words(target_pieces), {}};
  if (hypothesis.alignment.empty()) return translation;
  text::AlignmentWeights pieces{target_pieces.size(), source_pieces.size(), {}};
  for (std::size_t row = 0; row < target_pieces.size(); ++row) {  // without the target's </s>
    pieces.weights.insert(pieces.weights.end(), hypothesis.alignment[row].begin(),
                          hypothesis.alignment[row].end());
  }
  translation.weights =
      text::merge_pieces(pieces, tokenizer_->word_of(target_pieces), tokenizer_->word_of(source_pieces));
  return translation;
}

text::Alignment hard_alignment(const Translation& translation) {
  return text::hard_alignment(translation.weights, {.num_targets = translation.weights.target_len,
                                                    .num_sources = translation.weights.source_len - 1});
}

Translation Translator::align(const std::string& source, const std::string& target) {
  if (!model_->attends())
    throw InvalidArgument("Translator::align", "model", "a model with attention", "one without");
  const std::vector<std::int32_t> source_ids = tokenizer_->encode(source);
  models::Hypothesis given;
  given.ids = tokenizer_->encode(target);
  if (source_ids.empty() || given.ids.empty()) return {};
  models::Capture maps;
  nn::Context context;
  model_->hidden(context, models::make_batch({source_ids}, {given.ids}), &maps, nullptr);
  const Tensor weights = models::alignment_of(maps, *model_);
  const auto width = static_cast<std::int64_t>(source_ids.size()) + 1;
  for (std::int64_t row = 0; row <= static_cast<std::int64_t>(given.ids.size()); ++row) {
    const float* begin = weights.data<float>() + row * width;
    given.alignment.emplace_back(begin, begin + width);
  }
  Translation translation = describe(source, source_ids, given);
  translation.text = target;
  return translation;
}

Translator::Inspection Translator::inspect(const std::string& source, const std::string& target) {
  std::vector<std::int32_t> source_ids = tokenizer_->encode(source), target_ids = tokenizer_->encode(target);
  if (source_ids.empty())
    throw InvalidArgument("Translator::inspect", "source", "at least one word", "an empty line");
  const models::Batch batch = models::make_batch({source_ids}, {target_ids});
  Inspection inspection;
  nn::Context context;
  model_->hidden(context, batch, &inspection.maps, nullptr);
  source_ids.push_back(tokenizer_->eos_id());
  target_ids.push_back(tokenizer_->eos_id());
  inspection.source_pieces = pieces_of(*tokenizer_, source, source_ids);
  inspection.target_pieces = pieces_of(*tokenizer_, target, target_ids);
  return inspection;
}

}  // namespace fovea::train
