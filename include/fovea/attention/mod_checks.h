// Finds out why make_mod cannot take a lambda, before the lambda's body is compiled. The return type of a
// generic lambda is known only once its body has been compiled, and an error in there cannot be caught. So
// `takes` (below) first finds out whether the lambda accepts the arguments of a mod, without asking for its
// result. Only then is the return type examined.
//
// Errors inside the body, such as a call of a function that does not exist, cannot be caught: the compiler
// reports them in its own words. A plain exp(score) without `std::` or `elementwise::` compiles, because
// float has one. It gives right results, but does not vectorise.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fovea/attention/elementwise.h"
#include "fovea/attention/mod_node.h"
#include "fovea/attention/part_checks.h"
#include "fovea/attention/site.h"

namespace fovea {

namespace mod_detail {

/// The largest lambda. It is passed by value and lies on the stack meanwhile; a larger table belongs behind a
/// pointer.
inline constexpr std::size_t largest_capture = std::size_t{1} << 16;

template <class F>
concept Inheritable = std::is_class_v<F> && !std::is_final_v<F>;

struct NotTaken {};
// A second overload beside the lambda's own. Its object matches better, because it needs no const; each of
// its arguments matches worse. If the lambda can be called too, the call is therefore ambiguous. This shows
// without compiling the lambda's body.
template <class F>
struct Rival : F {
  using F::operator();
  NotTaken operator()(...);
};

enum class Taking : std::uint8_t { no, yes, only_mutable };

/// Whether a const F can be called with these arguments.
template <class F, class... Arguments>
consteval Taking takes() {
  if constexpr (!Inheritable<F>) {
    return std::is_invocable_v<const F&, Arguments...> ? Taking::yes : Taking::no;
  } else if constexpr (!requires(Rival<F> & f) { f(std::declval<Arguments>()...); }) {
    return Taking::yes;
  } else {
    using Result = decltype(std::declval<Rival<F>&>()(std::declval<Arguments>()...));
    return std::is_same_v<Result, NotTaken> ? Taking::no : Taking::only_mutable;
  }
}
template <class T, std::size_t>
using Repeated = T;

template <class F, class T, class... Rest, std::size_t... I>
consteval Taking takes_numbers(std::index_sequence<I...>) {
  return takes<F, T, Rest..., Repeated<T, I>...>();
}
/// Called with a number, a site and N more numbers.
template <class F, class T, std::size_t N>
inline constexpr Taking takes_mod = takes_numbers<F, T, Site>(std::make_index_sequence<N>());
/// Called with a number and N more numbers.
template <class F, class T, std::size_t N>
inline constexpr Taking takes_no_site = takes_numbers<F, T>(std::make_index_sequence<N>());

enum class Fault : std::uint8_t {
  none,
  too_many_names,
  not_kept,
  large_capture,
  not_callable,
  not_generic,
  is_mutable,
  no_site,
  more_names,
  fewer_names,
  other_parameters,
  number_type,
  returns_nothing,
  returns_bool,
  returns_other
};

// A lambda without `auto` has one operator(), whose address can be taken.
template <class F>
concept Generic = std::is_class_v<F> && !requires {
  &F::operator();
};

// Finds out why F cannot be called with a number, a site and N more numbers. If it takes one number for each
// name and the score, the site was forgotten. Otherwise other numbers of parameters are tried.
template <class F, std::size_t N, std::size_t Others = 0>
consteval Fault fault_of_count() {
  if constexpr (Others == 0 && takes_no_site<F, float, N> != Taking::no) {
    return Fault::no_site;
  } else if constexpr (Others > static_cast<std::size_t>(max_mod_arguments)) {
    return Fault::other_parameters;
  } else if constexpr (Others != N && takes_mod<F, float, Others> != Taking::no) {
    return Others < N ? Fault::more_names : Fault::fewer_names;
  } else if constexpr (takes_no_site<F, float, Others> != Taking::no) {
    return Fault::no_site;
  } else {
    return fault_of_count<F, N, Others + 1>();
  }
}

template <class F, class T, std::size_t... I>
consteval Fault fault_of_result(std::index_sequence<I...>) {
  using Result = std::remove_cvref_t<decltype(std::declval<const F&>()(
      std::declval<T>(), Site(), std::declval<Repeated<T, I>>()...))>;  // compiles the body
  if constexpr (std::is_void_v<Result>) return Fault::returns_nothing;
  if constexpr (std::is_same_v<Result, bool>) return Fault::returns_bool;
  return std::is_convertible_v<Result, T> ? Fault::none : Fault::returns_other;
}

template <class F, std::size_t N>
consteval Fault fault_of_call() {
  using elementwise::Dual;
  if constexpr (takes_mod<F, float, N> == Taking::only_mutable) {
    return Fault::is_mutable;
  } else if constexpr (takes_mod<F, float, N> == Taking::no) {
    return fault_of_count<F, N>();
  } else if constexpr (takes_mod<F, double, N> == Taking::no || takes_mod<F, Dual<float>, N> == Taking::no ||
                       takes_mod<F, Dual<double>, N> == Taking::no) {
    return Fault::number_type;
  } else {
    constexpr auto all = std::make_index_sequence<N>();
    if constexpr (constexpr Fault plain = fault_of_result<F, float>(all); plain != Fault::none)
      return plain;
    else
      return fault_of_result<F, Dual<float>>(all);
  }
}

/// The fault of a lambda of type F with N names of arguments.
template <class Given, class F, std::size_t N>
consteval Fault fault_of() {
  if constexpr (N > static_cast<std::size_t>(max_mod_arguments))
    return Fault::too_many_names;
  else if constexpr (!std::is_constructible_v<F, Given> || !std::is_move_constructible_v<F>)
    return Fault::not_kept;
  else if constexpr (sizeof(F) > largest_capture)
    return Fault::large_capture;
  else if constexpr (!std::is_class_v<F> && !std::is_pointer_v<F>)
    return Fault::not_callable;
  else if constexpr (!Generic<F>)
    return Fault::not_generic;
  else
    return fault_of_call<F, N>();
}

template <class>
inline constexpr bool never = false;

/// Stops the compilation with one sentence, where there is a fault.
template <Fault fault>
consteval bool explain() {
#define FOVEA_MOD_RIGHT \
  "; a right one is [](auto score, Site at, auto slope) { return score - slope * (at.query - at.key); }"
  static_assert(fault != Fault::too_many_names, "make_mod: a mod has at most 4 named arguments");
  static_assert(
      fault != Fault::not_kept,
      "make_mod: the mod keeps the lambda, whose captures can not be copied or moved here: hand it over "
      "by std::move, or capture a std::shared_ptr");
  static_assert(
      fault != Fault::large_capture,
      "make_mod: the lambda captures more than 64 KiB by value: capture a pointer or a std::shared_ptr "
      "to a table as large as this");
  static_assert(fault != Fault::not_callable, "make_mod: the last argument is no lambda" FOVEA_MOD_RIGHT);
  static_assert(
      fault != Fault::not_generic,
      "make_mod: the lambda's numbers need the type `auto`, because it is called with float, double and "
      "the dual numbers that carry its derivatives" FOVEA_MOD_RIGHT);
  static_assert(
      fault != Fault::is_mutable,
      "make_mod: the lambda is `mutable`, but all threads share it: it has to be const" FOVEA_MOD_RIGHT);
  static_assert(fault != Fault::no_site,
                "make_mod: the lambda lacks the parameter `Site at` behind the score" FOVEA_MOD_RIGHT);
  static_assert(
      fault != Fault::more_names,
      "make_mod: there are more argument names than the lambda has parameters behind the site; it needs "
      "one `auto` parameter for each name" FOVEA_MOD_RIGHT " with the names {\"slope\"}");
  static_assert(
      fault != Fault::fewer_names,
      "make_mod: there are fewer argument names than the lambda has parameters behind the site; each of "
      "them needs a name" FOVEA_MOD_RIGHT " with the names {\"slope\"}");
  static_assert(fault != Fault::other_parameters,
                "make_mod: the lambda can not be called with a score, a Site and one number for each "
                "name" FOVEA_MOD_RIGHT);
  static_assert(
      fault != Fault::number_type,
      "make_mod: each number of the lambda, the score and all behind the site, needs the type `auto`, "
      "because it is called with float, double and the dual numbers that carry its "
      "derivatives" FOVEA_MOD_RIGHT);
  static_assert(fault != Fault::returns_nothing, "make_mod: the lambda returns nothing" FOVEA_MOD_RIGHT);
  static_assert(
      fault != Fault::returns_bool,
      "make_mod: the lambda returns a truth value, but a mod returns the new score (a function that "
      "hides keys is a mask, Predicate in masks.h)" FOVEA_MOD_RIGHT);
  static_assert(fault != Fault::returns_other,
                "make_mod: the lambda returns something that is no number" FOVEA_MOD_RIGHT);
#undef FOVEA_MOD_RIGHT
  return fault == Fault::none;
}

}  // namespace mod_detail
}  // namespace fovea
