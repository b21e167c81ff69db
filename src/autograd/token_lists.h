// What the operations of recurrences share: copies of a call's lists, and results of two parts.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "autograd/record.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/core/error.h"
#include "fovea/core/kept_vector.h"

namespace fovea::autograd {

/// Copies of the lists of a call, which belong to the caller.
struct KeptLists {
  KeptVector<std::int64_t> starts;
  KeptVector<std::uint8_t> present;
  explicit KeptLists(const TokenLists& lists)
      : starts(lists.starts.begin(), lists.starts.end()),
        present(lists.present.begin(), lists.present.end()) {}
};

/// The sequences of a call, and the tokens of the longest.
struct Extent {
  std::int64_t sequences = 0, longest = 0;
};
inline Extent extent_of(const TokenLists& lists, std::int64_t batch, std::int64_t len) {
  if (lists.starts.empty()) return {batch, len};
  Extent extent{std::max<std::int64_t>(std::ssize(lists.starts) - 1, 1), 0};
  for (std::size_t n = 1; n < lists.starts.size(); ++n)
    extent.longest = std::max(extent.longest, lists.starts[n] - lists.starts[n - 1]);
  return extent;
}

/// Kept states have no gradients.
inline void check_unrecorded(const char* function, const KeptStates& states, const Tape* tape) {
  if (tape && (!states.initial.empty() || !states.final.empty()))
    throw InvalidArgument(function, "call.states", "none beside operands that are recorded",
                          std::to_string(std::max(states.initial.size(), states.final.size())) + " states");
}

inline ConstTensorView view_of(const Var& x) {
  return x.empty() ? ConstTensorView() : ConstTensorView(x.value());
}
/// A gradient tensor in the shape of `x`, if x is recorded.
inline Tensor gradient_like(const Var& x) {
  return x.recorded() ? Tensor(DType::f32, x.shape()) : Tensor();
}
inline TensorView writable(const Tensor& x) {
  return x ? TensorView(x) : TensorView();
}

/// Records the two results of one op. backward(d_output, d_state) runs once, if either has a gradient; one
/// without is empty. A tape gives a node one gradient. So a third node, recorded first, waits for both.
template <class Backward>
OutputAndState record_both(Tape* tape, const Tensor& output, const Tensor& state, Backward&& backward) {
  if (!tape) return {output, state ? Var(state) : Var()};
  struct Both {
    Tensor output, state;
  };
  const auto both = make_kept<Both>();
  Node* joint = tape->record([both, run = std::forward<Backward>(backward)](const Tensor&) {
    run(both->output, both->state);
    *both = {};
  });
  const Tensor reached = Tensor::zeros(DType::f32, {1});
  const auto wait = [&](const Tensor& value, Tensor Both::*gradient) -> Var {
    return {value, tape->record([=](const Tensor& d) {
              (*both).*gradient = d;
              accumulate(Var(reached, joint), reached.clone());
            })};
  };
  OutputAndState result;
  result.output = wait(output, &Both::output);
  if (state) result.final_state = wait(state, &Both::state);
  return result;
}

}  // namespace fovea::autograd
