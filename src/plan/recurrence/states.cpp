#include "plan/recurrence/states.h"

#include <string>
#include <type_traits>

#include "fovea/core/error.h"
#include "plan/rows.h"

namespace fovea {
namespace {

struct ListName {
  const char *list, *tensor;
};

// A list of one view a sequence, or nothing.
template <class View>
void check_list(const char* function, const ListName& name, std::span<const View> views, bool also_tensor,
                DType dtype, const Shape& shape) {
  if (views.empty()) return;
  if (also_tensor)
    throw InvalidArgument(function, name.list, std::string("none beside ") + name.tensor,
                          std::to_string(views.size()) + " states");
  if (std::ssize(views) != shape[0])
    throw InvalidArgument(function, name.list, std::to_string(shape[0]) + ", one for each sequence",
                          std::to_string(views.size()));
  const Shape one(shape.sizes().subspan(1));
  constexpr bool may_be_empty = std::is_same_v<View, ConstTensorView>;
  for (std::size_t n = 0; n < views.size(); ++n) {
    const View& view = views[n];
    if (may_be_empty && !is_given(view)) continue;
    const bool fits = view.dtype() == dtype && view.shape() == one && view.contiguous() && view.raw();
    if (!fits)
      check_contiguous(function, (std::string(name.list) + '[' + std::to_string(n) + ']').c_str(), view,
                       dtype, one);
  }
}

}  // namespace

void check_states(const char* function, const CallStates& states, DType dtype, const Shape& shape) {
  if (is_given(states.final_state))
    check_contiguous(function, "final_state", states.final_state, dtype, shape);
  check_list(function, {"initial_states", "initial_state"}, states.initial_states,
             is_given(states.initial_state), dtype, shape);
  check_list(function, {"final_states", "final_state"}, states.final_states, is_given(states.final_state),
             dtype, shape);
}

void refuse_state_list(const char* function, const char* list, std::size_t count) {
  if (count > 0)
    throw InvalidArgument(function, list, "none, because states are one tensor here",
                          std::to_string(count) + " states");
}

void add_states(OverlapCheck& overlaps, const CallStates& states) {
  overlaps.writes("final_state", states.final_state);
  for (const TensorView& state : states.final_states) overlaps.writes("final_states", state);
  const auto is = [](const ConstTensorView& a, const ConstTensorView& b) { return a && a.raw() == b.raw(); };
  if (!is(states.initial_state, states.final_state)) overlaps.reads("initial_state", states.initial_state);
  for (std::size_t n = 0; n < states.initial_states.size(); ++n) {
    const ConstTensorView& state = states.initial_states[n];
    if (states.final_states.empty() || !is(state, states.final_states[n]))
      overlaps.reads("initial_states", state);
  }
}

}  // namespace fovea
