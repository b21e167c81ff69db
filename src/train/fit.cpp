#include "fovea/train/fit.h"

#include <chrono>
#include <cmath>
#include <string>

#include "fovea/train/trainer.h"
#include "train/schedule.h"

namespace fovea::train {

FitStep fit(nn::ParameterSet& parameters, const FitOptions& options, const LossFunction& loss,
            const std::function<void(const FitStep&)>& on_step) {
  if (options.updates < 0)
    throw InvalidArgument("fit", "options.updates", "0 or more", std::to_string(options.updates));
  if (!loss) throw InvalidArgument("fit", "loss", "a function", "none");
  const nn::Schedule schedule = ending_at(options.schedule, options.updates);
  nn::Adam adam(parameters, options.adam);
  parameters.zero_gradients();
  autograd::Tape tape(options.precision);
  FitStep step{.updates = options.updates};
  const auto began = std::chrono::steady_clock::now();
  for (std::int64_t update = 1; update <= options.updates; ++update) {
    // Seeds of neighbouring trainings must not share the dropout of neighbouring updates: 2^32 updates a
    // seed.
    nn::Context context{.tape = &tape,
                        .dropout_seed = (options.seed << 32) + static_cast<std::uint64_t>(update),
                        .activations = options.activations};
    const nn::Var value = loss(context, update);
    if (value.empty() || value.value().count() != 1)
      throw InvalidArgument("fit", "loss", "a function that returns one number, [1]",
                            value.empty() ? "none" : to_string(value.shape()));
    step.update = update;
    step.loss = *value.value().data<float>();
    if (!std::isfinite(step.loss)) throw TrainingError(update, "the loss");
    tape.backward(value);
    tape.clear();
    step.learning_rate = nn::learning_rate(schedule, update);
    step.gradient_norm = adam.step(step.learning_rate);
    if (!std::isfinite(step.gradient_norm)) throw TrainingError(update, adam.first_bad_gradient());
    step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (on_step) on_step(step);
  }
  return step;
}

}  // namespace fovea::train
