// The training loop: batches, steps, validation, early stopping, checkpoints, averaging. It prints nothing; a
// listener may. It can be stopped and resumed at any step: a resumed training gives the same bits as an
// uninterrupted one, unless its rate depends on the time (TrainOptions::schedule).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fovea/models/sequence_to_sequence.h"
#include "fovea/nn/optimizer.h"
#include "fovea/text/bleu.h"
#include "fovea/text/tokenizer.h"
#include "fovea/train/batching.h"

namespace fovea::train {

enum class Metric : std::uint8_t { bleu, perplexity };

struct TrainOptions {
  std::int64_t batch_words = 4096;  ///< of make_batches
  /// A WarmupCosine with `updates` 0 ends with max_updates. Where those are 0, it ends with max_minutes: the
  /// rate of an update then depends on the time, and the weights on the speed of the machine. A warm-up that
  /// is longer than the training climbs to the peak until the end.
  nn::Schedule schedule = nn::InverseSquareRoot{};
  nn::AdamOptions adam;
  float smoothing = 0.1f;  ///< share of a label's probability that is spread over all classes
  /// Of the products of training; fovea::Precision is another thing. Validations multiply in f32, as the
  /// model in the folder will.
  autograd::Operands precision = autograd::Operands::f32;
  /// Recomputed activations take less memory and more time, and give the same bits: a training may be resumed
  /// with the other choice. Of stacks of blocks alone: an RNN translator keeps its activations.
  nn::Activations activations = nn::Activations::kept;
  std::int64_t max_updates = 0;     ///< 0: no limit
  std::int64_t max_epochs = 0;      ///< 0: no limit
  double max_minutes = 0.0;         ///< of training, summed over resumes; 0: no limit
  std::int64_t validate_every = 0;  ///< updates; 0: every epoch
  std::int64_t save_every = 500;    ///< updates between checkpoints, besides every validation
  /// The training stops after this many validations in a row that improved neither the best `metric` nor the
  /// best cross-entropy so far; 0: never. So a Transformer whose BLEU is still 0 goes on while its perplexity
  /// falls.
  int patience = 0;
  /// Chooses the best weights. BLEU is compared to two decimals; of equal ones the lower cross-entropy wins.
  Metric metric = Metric::bleu;
  int average = 0;  ///< snapshots (one per validation) averaged at the end; 0: none
  std::uint64_t seed = 1;
  std::string folder;
};

struct Data {
  std::vector<Example> train, valid;
  std::vector<std::string> valid_references;   ///< text, one for each example of `valid`
  const text::Tokenizer* tokenizer = nullptr;  ///< of the translations that a validation scores; never null
  text::BleuOptions bleu;
};

/// One validation; the learning curves are a list of these.
struct Validation {
  std::int64_t update = 0, epoch = 0;
  double seconds = 0.0;        ///< of training so far
  double train_loss = 0.0;     ///< smoothed, nats per token, since the last validation
  double cross_entropy = 0.0;  ///< nats per token, not smoothed
  double perplexity = 0.0;
  double bleu = 0.0;
  bool improved = false;
};

/// One step.
struct Progress {
  std::int64_t update = 0, epoch = 0;   ///< counted from 1
  std::int64_t batch = 0, batches = 0;  ///< of the epoch, counted from 1; for a language model of all updates
  double loss = 0.0;                    ///< nats per token, of this step
  double learning_rate = 0.0, gradient_norm = 0.0;
  double tokens_per_second = 0.0;      ///< source and target, without padding
  double seconds = 0.0;                ///< of training so far
  std::optional<double> seconds_left;  ///< until the nearest limit that is known
};

/// Called by the thread that trains.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_step(const Progress&) {}
  virtual void on_validation(const Validation&) {}
  virtual void on_message(const std::string&) {}
};

/// Why a training ended.
enum class Ended : std::uint8_t {
  finished,        ///< a limit was reached
  no_improvement,  ///< patience ran out
  stopped          ///< by should_stop
};

struct Result {
  Ended ended = Ended::finished;
  std::vector<Validation> curve;
  Validation final;       ///< of the model in the folder; if stopped, the last validation
  bool averaged = false;  ///< whether the averaged weights were better
};

/// Thrown when the loss or a gradient becomes NaN or infinite. `layer` is the first parameter whose gradient
/// is not finite. The last checkpoint is kept.
class TrainingError : public Error {
 public:
  TrainingError(std::int64_t update, const std::string& layer);
};

/// Whether a training begins with the weights that the model has, or goes on from the checkpoint in its
/// folder.
enum class Start : std::uint8_t { fresh, resume };

/// Trains `model` and leaves the best weights in it, and in options.folder as a model. `should_stop` is
/// called in every step and between the batches of a validation. If it returns true, a checkpoint is saved
/// and train returns; `model` then has the weights of that moment.
///
/// With Start::resume the checkpoint in the folder is loaded first. The options that it was trained with are
/// in training.json beside it. Data, seed, batch_words, schedule, adam, smoothing, precision and metric must
/// be the same, and so must the limit that ends a WarmupCosine. Other limits, patience, validate_every,
/// save_every and average may change: the new ones hold, and the listener gets a message for each.
///
/// Throws InvalidArgument for data without examples, and for a WarmupCosine without an end. Throws FileError
/// if there is no checkpoint to resume from or it does not fit, with the names of the options that differ,
/// and if the folder cannot be written. Throws TrainingError for a loss or a gradient that is not finite.
Result train(models::SequenceToSequence& model, const Data& data, const TrainOptions& options, Start start,
             Listener& listener, const std::function<bool()>& should_stop);

/// Cross-entropy (nats per token) over examples, without smoothing. Batches run side by side, with the same
/// bits for any number of threads. `between` is called at the beginning and before the batches that the
/// calling thread takes, in that thread, and may throw.
autograd::CrossEntropyStats evaluate(models::SequenceToSequence& model, const std::vector<Example>& examples,
                                     std::int64_t batch_words, const std::function<void()>& between = {});
/// The best translation of each source, in the order of `sources`; "" if there is none. `sources` are ids
/// without EOS. A beam_size of 1 is greedy search, and `normalize` is that of models::DecodeOptions. Sources
/// of similar length form batches; `between` as above.
std::vector<std::string> translate_all(models::SequenceToSequence& model,
                                       const std::vector<std::vector<std::int32_t>>& sources,
                                       const text::Tokenizer& tokenizer, int beam_size, double normalize,
                                       const std::function<void()>& between = {});

}  // namespace fovea::train
