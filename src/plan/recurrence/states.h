// The states of a call's sequences: in one tensor, or each where its owner keeps it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/recurrence/problem.h"
#include "plan/checks.h"
#include "plan/workspace.h"

namespace fovea {

/// What a call brings, as in RecurrenceInputs and RecurrenceOutputs. None is given twice.
struct CallStates {
  ConstTensorView initial_state = {};
  std::span<const ConstTensorView> initial_states = {};
  TensorView final_state = {};
  std::span<const TensorView> final_states = {};
  bool wants_final() const { return is_given(final_state) || !final_states.empty(); }
};
template <class Inputs, class Outputs>
CallStates states_of(const Inputs& inputs, const Outputs& outputs) {
  return {inputs.initial_state, inputs.initial_states, outputs.final_state, outputs.final_states};
}

/// Checks all but initial_state, which is one of a call's inputs. `shape` is that of all states in one
/// tensor.
void check_states(const char* function, const CallStates& states, DType dtype, const Shape& shape);
/// For functions that take states in one tensor alone: refuses a list of `count` of them.
void refuse_state_list(const char* function, const char* list, std::size_t count);
/// Adds what is written and read. A state may be updated where it is.
void add_states(OverlapCheck& overlaps, const CallStates& states);

/// The states as kernels take them, in lists in the workspace. With a counting carver they are empty.
template <class T>
struct CallStatePlaces {
  kernels::StatePlaces<const T> initial;
  kernels::StatePlaces<T> final;
};
template <class T>
CallStatePlaces<T> make_state_places(const CallStates& states, std::int64_t sequences, Carver& carver) {
  const T** const initials = carver.take<const T*>(sequences);
  T** const finals = carver.take<T*>(sequences);
  CallStatePlaces<T> places;
  if (!initials) return places;
  const auto list = [](const auto& views, auto* to) {
    for (std::size_t n = 0; n < views.size(); ++n) to[n] = views[n] ? views[n].template data<T>() : nullptr;
    return views.empty() ? nullptr : to;
  };
  places.initial = {states.initial_state ? states.initial_state.data<T>() : nullptr,
                    list(states.initial_states, initials)};
  places.final = {states.final_state ? states.final_state.data<T>() : nullptr,
                  list(states.final_states, finals)};
  return places;
}

}  // namespace fovea
