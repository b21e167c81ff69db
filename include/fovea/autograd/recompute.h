// Memory for time: a part of a forward pass whose intermediate values are not kept for backward, which
// computes them again.
#pragma once

#include <span>
#include <utility>

#include "fovea/autograd/var.h"
#include "fovea/core/kept_vector.h"

namespace fovea::autograd {

/// @cond
namespace recomputing {

/// Copies of the inputs of `recomputed`, which throws for those of another tape.
KeptVector<Var> checked(const Tape& tape, std::span<const Var> inputs);
/// The inputs on the tape of the part.
KeptVector<Var> on(Tape& tape, std::span<const Var> inputs);

}  // namespace recomputing
/// @endcond

/// part(tape, inputs), keeping the inputs alone: what the ops inside save is released at once. Backward calls
/// `part` again and passes the gradient on, to `inputs` and to parameters (Chen et al. 2016, arXiv
/// 1604.06174, section 3). The price is a second forward of the part. Gradients have the same bits as without
/// this. An input that is not recorded reaches `part` as a plain value.
///
/// `part` records on the tape that it gets, and takes its parameters by tape.use. It must compute the same in
/// both calls, so it is const and holds copies of all else that it reads, seeds of dropout among them.
///
/// Throws InvalidArgument for an input that another tape recorded, and what `part` throws; then nothing is
/// recorded.
template <class Part>
Var recomputed(Tape& tape, std::span<const Var> inputs, Part part) {
  KeptVector<Var> kept = recomputing::checked(tape, inputs);
  Tape first(tape.operands());
  const Var result = part(first, std::span<const Var>(recomputing::on(first, kept)));
  if (!result.recorded()) return result;
  return {result.value(),
          tape.record([&tape, kept = std::move(kept), part = std::move(part)](const Tensor& gradient) {
            Tape again(tape.operands());
            again.backward(part(again, std::span<const Var>(recomputing::on(again, kept))), gradient);
          })};
}

}  // namespace fovea::autograd
