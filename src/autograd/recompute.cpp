#include "fovea/autograd/recompute.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fovea::autograd {
namespace {

// The inputs on the tape of the part. Each goes on with the gradient that it has so far, and gives it back
// when all of the part is passed. So contributions are added in the order in which they would be without
// recomputation, which keeps the bits. An input that is given twice has one node.
std::vector<Var> on(Tape& tape, std::span<const Var> inputs) {
  std::vector<Var> result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Node* outer = inputs[i].node();
    if (!outer) {
      result.push_back(inputs[i]);
      continue;
    }
    const auto same = std::find_if(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const Var& before) { return before.node() == outer; });
    if (same != inputs.begin() + static_cast<std::ptrdiff_t>(i)) {
      result.emplace_back(inputs[i].value(), result[static_cast<std::size_t>(same - inputs.begin())].node());
      continue;
    }
    Node* inner = tape.record([outer](const Tensor& gradient) { outer->gradient = gradient; });
    inner->gradient = outer->gradient;
    result.emplace_back(inputs[i].value(), inner);
  }
  return result;
}

}  // namespace

Var recomputed(Tape& tape, std::span<const Var> inputs, Recomputable part) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].recorded() && inputs[i].node()->tape != &tape)
      throw InvalidArgument("recomputed", "inputs[" + std::to_string(i) + "]",
                            "a value recorded on the given tape, or not recorded", "one of another tape");
  }
  std::vector<Var> kept(inputs.begin(), inputs.end());
  Tape first(tape.operands());
  const Var result = part(first, on(first, kept));
  if (!result.recorded()) return result;
  return {result.value(),
          tape.record([&tape, kept = std::move(kept), part = std::move(part)](const Tensor& gradient) {
            Tape again(tape.operands());
            again.backward(part(again, on(again, kept)), gradient);
          })};
}

}  // namespace fovea::autograd
