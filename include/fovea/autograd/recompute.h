// Memory for time: a part of a forward pass whose intermediate values are not kept for backward, which
// computes them again.
#pragma once

#include <functional>
#include <span>

#include "fovea/autograd/var.h"

namespace fovea::autograd {

/// A part of a forward pass. It records on `tape` and takes its parameters by tape.use. It must compute the
/// same in both calls, so it holds copies of all else that it reads, seeds of dropout among them.
using Recomputable = std::function<Var(Tape& tape, std::span<const Var> inputs)>;

/// part(inputs), keeping the inputs alone: what the ops inside save is released at once. Backward calls
/// `part` again and passes the gradient on, to `inputs` and to parameters (Chen et al. 2016, arXiv
/// 1604.06174, section 3). The price is a second forward of the part. Gradients have the same bits as without
/// this. An input that is not recorded reaches `part` as a plain value.
///
/// Throws InvalidArgument for an input that another tape recorded, and what `part` throws; then nothing is
/// recorded.
Var recomputed(Tape& tape, std::span<const Var> inputs, Recomputable part);

}  // namespace fovea::autograd
