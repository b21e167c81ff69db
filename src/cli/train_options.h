// What `fovea train` was told, for the files that train a kind of model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fovea/models/language_model.h"
#include "fovea/nn/module.h"
#include "fovea/nn/optimizer.h"
#include "fovea/text/tokenizer.h"
#include "fovea/train/trainer.h"

namespace fovea::cli {

/// The options of `fovea train`, as they are given.
struct TrainCommand {
  std::string model = "rnn", output, corpus, language = "fr";
  std::string train_source, train_target, train_tsv, valid_source, valid_target, valid_tsv;
  std::string tokenizer = "bpe", bad_lines = "refuse";
  std::int64_t vocabulary = 8000, max_length = 100, corpus_size = 30000;
  std::string attention = "additive", query = "before", values = "states", cell = "gru", norm = "post",
              positions = "sinusoidal";
  std::int64_t embedding = 256, hidden = 256, dim = 128, feed_forward = 256, heads = 4, layers = 4;
  double dropout = 0.1, attention_dropout = 0.0;
  std::string schedule = "inverse-square-root", metric = "bleu", precision = "f32";
  nn::Activations activations = nn::Activations::kept;
  double rate = 0.001, beta2 = 0.98, smoothing = 0.1, clip = 0.0, minutes = 0.0;
  std::int64_t warmup = 1000, updates = 0, epochs = 0, batch_words = 4096, validate_every = 0,
               save_every = 500;
  int patience = 10, average = 0, threads = 0;
  std::uint64_t seed = 1;
  std::string mixers, encoder_mixers;
  // Of a language model.
  std::string train_text, valid_text;
  std::int64_t window = 128, batch = 16, longest = 4096;
  bool resume = false, vocabulary_given = false, tokenizer_given = false, smoothing_given = false,
       mixers_given = false, encoder_mixers_given = false;
};

/// The mixer of each layer of a language model, or of a translator's decoder. Throws InvalidArgument for
/// --mixers.
std::vector<models::LayerMixer> mixers_of(const TrainCommand& options);
/// Those of a translator's encoder: by default the same.
std::vector<models::LayerMixer> encoder_mixers_of(const TrainCommand& options);
/// The tokenizer of the training in --output. Throws InvalidArgument for a --tokenizer of another kind.
std::unique_ptr<text::Tokenizer> resumed_tokenizer(const TrainCommand& options);
/// Throws InvalidArgument for an --output that cannot be a folder, and for one with a model. A folder with a
/// training must be resumed, and one without must not.
void check_output(const TrainCommand& options);
/// Runs `train` in the folder of --output, shows its progress, and prints how it ended; `figures` says what
/// the best validation had. Throws Stopped after a signal, and InvalidArgument, by its option, for a text
/// that is too short. A new training that fails before its first checkpoint leaves nothing in the folder.
void run_training(const TrainCommand& options, const text::Tokenizer& tokenizer,
                  const std::function<train::Result(train::Start, train::Listener&)>& train,
                  const std::function<std::string(const train::Result&)>& figures);
/// Throws InvalidArgument for a cosine without an end.
nn::Schedule schedule_of(const TrainCommand& options);
/// Trains a translator on pairs of lines.
void train_translator(const TrainCommand& options);
/// Trains a language model on the text of a file.
void train_language_model(const TrainCommand& options);

}  // namespace fovea::cli
