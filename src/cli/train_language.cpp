// `fovea train --model language`.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/train_options.h"
#include "fovea/files/bytes.h"
#include "fovea/text/corpus.h"
#include "fovea/text/tokenizer.h"
#include "fovea/train/language.h"

namespace fovea::cli {
namespace {

constexpr std::size_t longest_text = std::size_t{1} << 32;

std::string read_text(const std::string& path, const char* option) {
  if (path.empty()) throw InvalidArgument("fovea train", option, "a file of text", "none");
  return files::read_file(path, longest_text);
}

bool has_heads(models::LayerMixer mixer) {
  return mixer != models::LayerMixer::mamba;
}

// Heads of a model whose layers have none: any number that divides its dim.
std::int64_t heads_of(const TrainCommand& o) {
  return std::ranges::any_of(mixers_of(o), has_heads) ? o.heads : 1;
}

// Refuses what needs no file to be refused.
void check(const TrainCommand& o) {
  if (o.updates == 0 && o.minutes == 0.0 && o.patience == 0)
    throw InvalidArgument("fovea train", "--max-updates",
                          "a limit here or in --max-minutes, or a number above 0 in --early-stopping",
                          "none");
  (void)schedule_of(o);
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
  train::LanguageOptions options{
      .window = o.window,
      .batch = o.batch,
      .schedule = schedule_of(o),
      .adam = {.beta1 = 0.9, .beta2 = o.beta2, .epsilon = 1e-8, .clip_norm = o.clip},
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
  return options;
}

}  // namespace

void check_resumed(const TrainCommand& o, const text::Tokenizer& tokenizer) {
  const auto* pieces = dynamic_cast<const text::SentencePieceTokenizer*>(&tokenizer);
  const bool characters = pieces && pieces->piece_kind() == text::SentencePieceOptions::Pieces::characters;
  const std::string kind = !pieces ? "whitespace" : characters ? "characters" : "bpe";
  if (o.tokenizer_given && o.tokenizer != kind)
    throw InvalidArgument("fovea train", "--tokenizer", kind + ", as the training in --output has",
                          o.tokenizer);
}

void train_language_model(const TrainCommand& o) {
  check(o);
  catch_signals();
  nn::use_threads(o.threads);
  check_output(o);
  const std::string train_text = read_text(o.train_text, "--train-text"),
                    valid_text = read_text(o.valid_text, "--valid-text");
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (o.resume) {
    tokenizer = text::load_tokenizer(o.output);
    check_resumed(o, *tokenizer);
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
  NewTraining folder(o.output);
  if (!o.resume) folder.save(*tokenizer);
  train::Result result;
  {
    TerminalProgress progress("[" + std::filesystem::path(o.output).filename().string() + "]",
                              TerminalProgress::Shows::perplexity_alone);
    result = run_named(o, [&] {
      return train::train(model, {train_ids, valid_ids}, options_of(o),
                          o.resume ? train::Start::resume : train::Start::fresh, progress, stop_requested);
    });
  }
  if (result.ended == train::Ended::stopped) throw Stopped{"stopped and saved; go on with --resume"};
  fmt::print(stderr, "{}; best validation: perplexity {:.2f}; model in {}\n",
             result.ended == train::Ended::no_improvement ? "stopped early: no improvement" : "finished",
             result.final.perplexity, o.output);
}

}  // namespace fovea::cli
