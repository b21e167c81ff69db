// The shortest training loop: it minimises a loss that the caller computes. The loop for translators, with
// batches by tokens, validation and checkpoints, is in train/trainer.h.
#pragma once

#include <cstdint>
#include <functional>

#include "fovea/nn/module.h"
#include "fovea/nn/optimizer.h"

namespace fovea::train {

struct FitOptions {
  std::int64_t updates = 1000;
  nn::Schedule schedule = nn::WarmupCosine{};
  nn::AdamOptions adam{.beta2 = 0.98, .clip_norm = 1.0};
  std::uint64_t seed = 1;                                  ///< of dropout
  autograd::Operands precision = autograd::Operands::f32;  ///< of the products
  nn::Activations activations = nn::Activations::kept;
};

struct FitStep {
  std::int64_t update = 0, updates = 0;  ///< counted from 1
  double loss = 0.0, learning_rate = 0.0, gradient_norm = 0.0;
  double seconds = 0.0;  ///< since the first update began
};

/// The loss of one update, [1], recorded on context.tape; `update` counts from 1. Random choices, that of the
/// batch too, should depend on `update` alone, so that a training can be repeated.
using LossFunction = std::function<nn::Var(nn::Context& context, std::int64_t update)>;

/// `options.updates` steps of Adam on `loss`. With WarmupCosine{.updates = 0} the schedule ends with the
/// training. Returns the last step. Throws TrainingError when a loss or a gradient is not finite,
/// and InvalidArgument for options outside their ranges, for no loss, and for one that is not one number.
FitStep fit(nn::ParameterSet& parameters, const FitOptions& options, const LossFunction& loss,
            const std::function<void(const FitStep&)>& on_step = {});

}  // namespace fovea::train
