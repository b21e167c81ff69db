// Adam and learning-rate schedules.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "fovea/nn/module.h"

namespace fovea::nn {

struct Constant {
  double rate = 1e-3;
};
/// Linear warm-up to `peak` over `warmup` steps, then peak·sqrt(warmup / step) (Vaswani et al. 2017,
/// section 5.3).
struct InverseSquareRoot {
  double peak = 5e-4;
  std::int64_t warmup = 4000;
};
/// Linear warm-up to `peak` over `warmup` steps, then half a cosine down to 0 at step `updates` (Loshchilov &
/// Hutter 2017, arXiv 1608.03983, without restarts). For trainings whose length is known: it ends lower than
/// the inverse square root after as many steps.
struct WarmupCosine {
  double peak = 1e-3;
  std::int64_t warmup = 100;
  std::int64_t updates = 0;  ///< 0: train::fit puts its own in
};
using Schedule = std::variant<Constant, InverseSquareRoot, WarmupCosine>;
/// Learning rate of step `step`, counted from 1. Throws InvalidArgument for a WarmupCosine that has no end.
double learning_rate(const Schedule& schedule, std::int64_t step);

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 0.0;  ///< largest global gradient norm; 0: no clipping
};

/// Kingma & Ba 2015, arXiv 1412.6980, with bias correction. State is two tensors a parameter and the step,
/// all open to checkpoints. A parameter p whose rate_factor is c is updated as c·x, with x the variable that
/// learns at the full rate: the gradient by x, c times that by p, enters the moments and the global norm.
class Adam {
 public:
  Adam(ParameterSet& parameters, AdamOptions options);
  /// Scales all gradients by `gradient_scale`, clips, updates values and zeroes gradients. Returns the global
  /// norm after scaling, before clipping. A norm that is not finite changes nothing: first_bad_gradient tells
  /// whose it is.
  double step(double rate, double gradient_scale = 1.0);
  std::int64_t steps() const noexcept { return steps_; }
  void set_steps(std::int64_t steps) noexcept { steps_ = steps; }
  std::vector<Tensor>& first_moments() noexcept { return first_; }
  std::vector<Tensor>& second_moments() noexcept { return second_; }
  /// The name of the first parameter whose gradient is not finite; empty if none.
  std::string first_bad_gradient() const;

 private:
  ParameterSet& parameters_;
  AdamOptions options_;
  std::int64_t steps_ = 0;
  std::vector<Tensor> first_, second_;
};

}  // namespace fovea::nn
