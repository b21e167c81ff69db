#include "fovea/train/translator.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <sstream>
#include <utility>

#include "fovea/core/executor.h"
#include "fovea/core/profile.h"
#include "fovea/models/batches.h"
#include "fovea/models/model_folder.h"
#include "train/error_of.h"

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

namespace {

using Ids = std::vector<std::int32_t>;

// A line on its way: its ids, and then its texts or its error.
struct Line {
  Ids ids = {};
  std::vector<Translation> texts = std::vector<Translation>(1);
  std::exception_ptr error = {};
  models::DecodeStats stats = {};  // of the batch whose first line it is
};

void encode(const text::Tokenizer& tokenizer, const std::string& text, std::int64_t longest, Line& line) {
  line.error = error_of([&] {
    line.ids = tokenizer.encode(text);
    const std::int64_t pieces = std::ssize(line.ids);
    if (longest == 0 || pieces <= longest) return;
    line.ids.clear();
    throw InvalidArgument("Translator::translate", "options.longest",
                          "at most " + std::to_string(longest) + " pieces", std::to_string(pieces));
  });
}

void check_batch(const char* argument, std::int64_t batch) {
  if (batch < 1)
    throw InvalidArgument("Translator::translate", argument, "at least 1", std::to_string(batch));
}

// An upper bound of the bytes that are held at one time, from the peak of each batch. One batch runs on each
// thread. Which batches reach their peaks together is not known, so the largest peaks are added.
std::int64_t most_bytes_at_once(std::vector<std::int64_t> bytes) {
  std::ranges::sort(bytes, std::greater<>());
  const auto count = std::min<std::int64_t>(std::ssize(bytes), default_executor().thread_count());
  return std::accumulate(bytes.begin(), bytes.begin() + count, std::int64_t{0});
}

}  // namespace

std::vector<std::vector<Translation>> Translator::translate_batch(const std::vector<std::string>& lines,
                                                                  const std::vector<Ids>& sources,
                                                                  const models::DecodeOptions& options,
                                                                  models::DecodeStats& stats) {
  const auto decoded = models::decode(*model_, sources, options, &stats);
  std::vector<std::vector<Translation>> all(lines.size());
  for (std::size_t n = 0; n < decoded.size(); ++n) {
    for (const models::Hypothesis& hypothesis : decoded[n])
      all[n].push_back(describe(lines[n], sources[n], hypothesis));
  }
  return all;
}

void Translator::translate(const std::vector<std::string>& texts, const TranslateOptions& options,
                           const TranslationDone& done, models::DecodeStats* stats) {
  check_batch("options.batch", options.batch);
  std::vector<Line> lines(texts.size());
  default_executor().parallel_for(std::ssize(lines), [&](std::int64_t i, int) {
    encode(*tokenizer_, texts[static_cast<std::size_t>(i)], options.longest,
           lines[static_cast<std::size_t>(i)]);
  });
  const auto cancelled = [&] { return options.search.cancelled && options.search.cancelled(); };
  const auto translate_alone = [&](std::size_t i, models::DecodeStats& of) {
    const std::exception_ptr error = error_of(
        [&] { lines[i].texts = translate_batch({texts[i]}, {lines[i].ids}, options.search, of).front(); });
    if (error) lines[i].error = error;
  };
  const auto translate = [&](std::span<const std::size_t> own) {
    if (cancelled()) return false;
    std::vector<std::string> of_batch;
    std::vector<Ids> sources;
    for (const std::size_t i : own) {
      of_batch.push_back(texts[i]);
      sources.push_back(lines[i].ids);
    }
    models::DecodeStats& of = lines[own.front()].stats;
    const std::exception_ptr error = error_of([&] {
      auto found = translate_batch(of_batch, sources, options.search, of);
      for (std::size_t n = 0; n < own.size(); ++n) lines[own[n]].texts = std::move(found[n]);
    });
    if (error) {  // of one line, and nobody knows of which
      for (const std::size_t i : own) {
        models::DecodeStats alone;
        translate_alone(i, alone);
        of += alone;
      }
    }
    return !cancelled();
  };
  std::vector<std::int64_t> lengths;
  for (const Line& line : lines) lengths.push_back(std::ssize(line.ids));
  models::for_batches_in_order(lengths, options.batch, translate, [&](std::size_t i) {
    const Line line = std::exchange(lines[i], {});
    done(i, line.error ? std::vector<Translation>() : line.texts, line.error);
    lines[i].stats = line.stats;
  });
  if (!stats) return;
  *stats = {};
  std::vector<std::int64_t> bytes;
  for (const Line& line : lines) {
    *stats += line.stats;
    bytes.push_back(line.stats.peak_state_bytes);
  }
  stats->peak_state_bytes = most_bytes_at_once(std::move(bytes));
}

std::vector<std::vector<Translation>> Translator::translate(const std::vector<std::string>& lines,
                                                            const models::DecodeOptions& options,
                                                            std::size_t batch, models::DecodeStats* stats) {
  const auto size = static_cast<std::int64_t>(batch);
  check_batch("batch", size);
  std::vector<std::vector<Translation>> all(lines.size());
  const auto keep = [&](std::size_t i, const std::vector<Translation>& texts,
                        const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
    all[i] = texts;
  };
  translate(lines, {.search = options, .batch = size}, keep, stats);
  return all;
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
