// `fovea train --model language`.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/texts.h"
#include "cli/train_options.h"
#include "fovea/files/bytes.h"
#include "fovea/text/corpus.h"
#include "fovea/text/tokenizer.h"
#include "fovea/train/language.h"

namespace fovea::cli {
namespace {

std::string read_text(const std::string& path, const char* option) {
  if (path.empty()) throw InvalidArgument("fovea train", option, "a file of text", "none");
  return files::read_file(path, longest_text);
}

bool has_heads(models::LayerMixer mixer) {
  return mixer != models::LayerMixer::mamba;
}

// A config needs a number that divides its dim, also where no layer has heads.
std::int64_t heads_of(const TrainCommand& o) {
  return std::ranges::any_of(mixers_of(o), has_heads) ? o.heads : 1;
}

// Refuses what needs no file to be refused.
void check(const TrainCommand& o) {
  if (o.updates == 0 && o.minutes == 0.0 && o.patience == 0)
    throw InvalidArgument("fovea train", "--max-updates",
                          "a limit here or in --max-minutes, or a number above 0 in --early-stopping",
                          "none");
  const std::int64_t heads = heads_of(o);
  if (o.dim % (2 * heads) != 0)
    throw InvalidArgument("fovea train", "--dim",
                          "an even multiple of " + std::to_string(heads) + ", the number of heads (--heads)",
                          std::to_string(o.dim));
}

models::LanguageModelConfig config_of(const TrainCommand& o, std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .dim = o.dim,
          .feed_forward = o.feed_forward,
          .heads = heads_of(o),
          .layers = o.layers,
          .positions = std::max(o.longest, o.window),
          .dropout = static_cast<float>(o.dropout),
          .attention_dropout = static_cast<float>(o.attention_dropout),
          .mixers = mixers_of(o)};
}

train::LanguageOptions options_of(const TrainCommand& o) {
  return {.window = o.window,
          .batch = o.batch,
          .schedule = schedule_of(o),
          .adam = {.beta1 = 0.9, .beta2 = o.beta2, .epsilon = 1e-8, .clip_norm = o.clip},
          // The default of --label-smoothing is for translators.
          .smoothing = o.smoothing_given ? static_cast<float>(o.smoothing) : 0.0f,
          .precision = autograd::parse_operands(o.precision),
          .activations = o.activations,
          .max_updates = o.updates,
          .max_minutes = o.minutes,
          .validate_every = o.validate_every > 0 ? o.validate_every : 200,
          .save_every = o.save_every,
          .patience = o.patience,
          .seed = o.seed,
          .folder = o.output};
}

}  // namespace

void train_language_model(const TrainCommand& o) {
  check(o);
  catch_signals();
  nn::use_threads(o.threads);
  check_output(o);
  const std::string train_text = read_text(o.train_text, "--train-text"),
                    valid_text = read_text(o.valid_text, "--valid-text");
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (o.resume) {
    tokenizer = resumed_tokenizer(o);
  } else {
    using Pieces = text::SentencePieceOptions::Pieces;
    tokenizer = text::SentencePieceTokenizer::train(
        text::read_lines(o.train_text),
        {.vocabulary_size = o.vocabulary,
         .pieces = o.tokenizer == "characters" ? Pieces::characters : Pieces::merged});
  }
  const std::vector<std::int32_t> train_ids = text::encode_lines(*tokenizer, train_text),
                                  valid_ids = text::encode_lines(*tokenizer, valid_text);
  models::LanguageModel model(config_of(o, tokenizer->size()), o.seed);
  fmt::print(stderr, "{} tokens to train on, {} to validate; vocabulary {}, {:.2f} M parameters\n",
             train_ids.size(), valid_ids.size(), tokenizer->size(),
             static_cast<double>(model.parameters().count()) / 1e6);
  run_training(
      o, *tokenizer,
      [&](train::Start start, train::Listener& progress) {
        return train::train(model, {train_ids, valid_ids}, options_of(o), start, progress, stop_requested);
      },
      [](const train::Result& result) { return fmt::format("perplexity {:.2f}", result.final.perplexity); });
}

}  // namespace fovea::cli
