// Training of language models (models/language_model.h): windows of a long text, drawn at random. It has the
// checkpoints, limits and early stopping of trainer.h. Like that it can be stopped and resumed at any step
// with the same bits, unless its rate depends on the time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "fovea/models/language_model.h"
#include "fovea/train/trainer.h"

namespace fovea::train {

/// Texts as ids, such as text::encode_lines gives.
struct LanguageData {
  std::span<const std::int32_t> train, valid;
};

struct LanguageOptions {
  std::int64_t window = 128;                   ///< tokens of a window that are predicted; it has one more
  std::int64_t batch = 16;                     ///< windows of an update
  nn::Schedule schedule = nn::WarmupCosine{};  ///< as in TrainOptions
  nn::AdamOptions adam{.beta2 = 0.98, .clip_norm = 1.0};
  float smoothing = 0.0f;
  autograd::Operands precision = autograd::Operands::f32;  ///< of the products of training
  nn::Activations activations = nn::Activations::kept;     ///< as in TrainOptions
  std::int64_t max_updates = 1000;                         ///< 0: no limit
  double max_minutes = 0.0;                                ///< of training, summed over resumes; 0: no limit
  std::int64_t validate_every = 100, save_every = 500;     ///< updates
  int patience = 0;  ///< validations in a row that did not improve the cross-entropy; 0: never stop
  std::uint64_t seed = 1;
  std::string folder;
};

/// Trains `model` and leaves the best weights in options.folder as a model. The batch of an update depends on
/// the seed and the number of the update alone. Validation is by cross-entropy over the windows of `valid`,
/// one behind the other; BLEU is 0. `start` and `should_stop` are as for translators. A checkpoint fits if
/// data, seed, window, batch, smoothing, precision, the optimiser and the model's config are the same.
///
/// Throws InvalidArgument for texts without a whole window, for no limit at all, and for a cosine without an
/// end. Throws FileError and TrainingError as the other train does.
Result train(models::LanguageModel& model, const LanguageData& data, const LanguageOptions& options,
             Start start, Listener& listener, const std::function<bool()>& should_stop);

/// The cross-entropy of `ids`, each token given those before it in its window. Batches of `batch` windows run
/// side by side; `between` as for translators. Throws InvalidArgument for a window or batch below 1.
autograd::CrossEntropyStats evaluate(models::LanguageModel& model, std::span<const std::int32_t> ids,
                                     std::int64_t window, std::int64_t batch,
                                     const std::function<void()>& between = {});

}  // namespace fovea::train
