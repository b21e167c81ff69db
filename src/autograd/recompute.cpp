#include "fovea/autograd/recompute.h"

#include <algorithm>
#include <string>

namespace fovea::autograd::recomputing {

KeptVector<Var> checked(const Tape& tape, std::span<const Var> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].recorded() && inputs[i].node()->tape != &tape)
      throw InvalidArgument("recomputed", "inputs[" + std::to_string(i) + "]",
                            "a value recorded on the given tape, or not recorded", "one of another tape");
  }
  return {inputs.begin(), inputs.end()};
}

// Each input goes on with the gradient that it has so far, and gives it back
// when all of the part is passed. So contributions are added in the order in which they would be without
// recomputation, which keeps the bits. An input that is given twice has one node.
KeptVector<Var> on(Tape& tape, std::span<const Var> inputs) {
  KeptVector<Var> result;
  result.reserve(inputs.size());
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

}  // namespace fovea::autograd::recomputing
