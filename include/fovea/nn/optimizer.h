// Adam and learning-rate schedules.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "fovea/core/memory.h"
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
/// Hutter 2017, arXiv 1608.03983, without restarts). For a training whose length is known: after as many
/// steps the rate is lower than that of the inverse square root.
struct WarmupCosine {
  double peak = 1e-3;
  std::int64_t warmup = 100;
  std::int64_t updates = 0;  ///< 0: the training sets it (train/fit.h, trainer.h, language.h)
};
using Schedule = std::variant<Constant, InverseSquareRoot, WarmupCosine>;
/// Learning rate of step `step`, counted from 1. Throws InvalidArgument for a WarmupCosine that has no end.
double learning_rate(const Schedule& schedule, std::int64_t step);

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;  ///< in [0, 1)
  double epsilon = 1e-8;              ///< above 0
  double clip_norm = 0.0;             ///< largest global gradient norm; 0: no clipping
};

/// Kingma & Ba 2015, arXiv 1412.6980, with bias correction. The state is two tensors for each parameter and
/// the number of the step; a checkpoint can read and set all of it. A parameter p with rate_factor c is
/// updated as p = c·x, where x learns at the full rate. The gradient by x, which is c times the gradient by
/// p, enters the moments and the global norm.
class Adam {
 public:
  /// `parameters` must outlive it. Throws InvalidArgument for options outside their ranges, and for a
  /// parameter of a model that was read packed.
  Adam(ParameterSet& parameters, AdamOptions options);
  /// Scales all gradients by `gradient_scale`, clips, updates values and zeroes gradients. Returns the global
  /// norm after scaling, before clipping. If the norm is not finite, nothing is changed; first_bad_gradient
  /// names the parameter. Throws InvalidArgument for a rate that is negative or not finite.
  double step(double rate, double gradient_scale = 1.0);
  /// How many steps were taken: those of the bias correction.
  std::int64_t steps() const noexcept { return steps_; }
  void set_steps(std::int64_t steps) noexcept { steps_ = steps; }
  /// One tensor for each parameter, of its shape, in the order of ParameterSet::all.
  std::vector<Tensor>& first_moments() noexcept { return first_; }
  std::vector<Tensor>& second_moments() noexcept { return second_; }
  /// The name of the first parameter whose gradient is not finite; empty if none.
  std::string first_bad_gradient() const;

 private:
  /// @cond
  KeepMemory memory_;  // of a step, for the next one
  // A part of one parameter: a unit of parallel work, whose size is fixed so that sums are taken in the same
  // order for every number of threads. One loop goes over the pieces of all parameters.
  struct Piece {
    Parameter* parameter;
    std::size_t index;
    std::int64_t begin, count;
  };
  /// @endcond
  double squared_norm_of_gradients() const;

  ParameterSet& parameters_;
  AdamOptions options_;
  std::vector<Piece> pieces_;
  std::int64_t steps_ = 0;
  std::vector<Tensor> first_, second_;
};

}  // namespace fovea::nn
