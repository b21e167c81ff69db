// Explains why a type is not a mask, in one sentence a member. mask.h uses it where a type with some members
// of a mask is given as a mask.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>

namespace fovea::members {

// True if a class has a member of this name, whatever its parameters. A second base class with the same name
// makes the name ambiguous, also for private and overloaded members.
#define FOVEA_HAS_MEMBER(Concept, member)                                    \
  struct Second##Concept {                                                   \
    int member;                                                              \
  };                                                                         \
  template <class T>                                                         \
  struct Both##Concept : T, Second##Concept {};                              \
  template <class T>                                                         \
  concept Concept = std::is_class_v<T> && !std::is_final_v<T> && !requires { \
    &Both##Concept<T>::member;                                               \
  };
FOVEA_HAS_MEMBER(HasAllows, allows)
FOVEA_HAS_MEMBER(HasSpans, spans)
FOVEA_HAS_MEMBER(HasPrint, print)
FOVEA_HAS_MEMBER(HasValidate, validate)
FOVEA_HAS_MEMBER(HasByHead, by_head)
FOVEA_HAS_MEMBER(HasTextIsAll, text_is_all)
#undef FOVEA_HAS_MEMBER

struct SecondCallOperator {
  void operator()();
};
template <class T>
struct BothCallOperators : T, SecondCallOperator {};
template <class T>
concept HasCallOperator = std::is_class_v<T> && !std::is_final_v<T> && !requires {
  &BothCallOperators<T>::operator();
};

}  // namespace fovea::members

namespace fovea {

struct Site;
struct QueryBlock;
struct BlockSpans;
class Mask;
class MaskNode;

namespace mask_detail {

using namespace members;

// A function of a site. A function with `auto` parameters is compiled here only if one argument is enough.
template <class F>
concept TakesSite = std::is_invocable_v<F&, const Site&>;
template <class F>
concept SaysOfSite = std::is_invocable_r_v<bool, F&, const Site&>;
template <class F>
concept FunctionOfSite = SaysOfSite<F> && std::is_copy_constructible_v<F>;

/// A type with `allows` or `spans`. Hardly any other type has these members, so it was meant as a mask.
template <class T>
concept MeantAsMask = std::is_class_v<T> &&(HasAllows<T> || HasSpans<T>);
/// A function that is not wrapped in a Predicate. Generic functions are not examined, because an examination
/// would compile their bodies.
template <class T>
concept BareFunction = requires {
  &T::operator();
}
&&std::is_invocable_r_v<bool, const T&, const Site&>;

/// Stops the compilation with one message for each member that is missing or has the wrong declaration.
template <class T>
constexpr void explain_members() {
  constexpr bool has_allows = HasAllows<T>, has_spans = HasSpans<T>, has_print = HasPrint<T>,
                 has_validate = HasValidate<T>;
  constexpr bool allows_fits = requires(const T& mask, const Site& site) {
    { mask.allows(site) } -> std::same_as<bool>;
  };
  constexpr bool spans_fits = requires(const T& mask, const QueryBlock& block) {
    { mask.spans(block) } -> std::same_as<BlockSpans>;
  };
  constexpr bool print_fits = requires(const T& mask) {
    { mask.print() } -> std::same_as<std::string>;
  };
  constexpr bool validate_fits = requires(const T& mask) {
    mask.validate();
  };
  // clang-format off
  static_assert(has_allows, "a mask type lacks `bool allows(const Site& site) const`, the answer for one pair");
  static_assert(allows_fits || !has_allows, "a mask type's `allows` has to be declared `bool allows(const Site& site) const`, public and const");
  static_assert(has_spans, "a mask type lacks `BlockSpans spans(const QueryBlock& block) const`, the keys that some and that all queries of a block see");
  static_assert(spans_fits || !has_spans, "a mask type's `spans` has to be declared `BlockSpans spans(const QueryBlock& block) const`, public and const");
  static_assert(has_print, "a mask type lacks `std::string print() const`, its text");
  static_assert(print_fits || !has_print, "a mask type's `print` has to be declared `std::string print() const`, public and const");
  static_assert(has_validate, "a mask type lacks `void validate() const`, which throws InvalidArgument for parameters that make no sense");
  static_assert(validate_fits || !has_validate, "a mask type's `validate` has to be declared `void validate() const`, public and const");
  // clang-format on
}

/// The same for any type that is given as a mask. Functions and MaskNodes get a message of their own.
template <class T>
constexpr void explain_mask() {
  constexpr bool is_function = BareFunction<T>, is_node = std::is_base_of_v<MaskNode, T>;
  static_assert(
      !is_function,
      "a function becomes a mask by a Predicate, which has to know the sites: Predicate(\"mine\", "
      "{.query_end = query_len, .key_len = key_len}, [](const Site& at) { return at.key <= at.query; })");
  static_assert(!is_node,
                "a MaskNode becomes a mask behind a pointer: Mask(std::make_shared<const Mine>(...))");
  if constexpr (!is_function && !is_node) explain_members<T>();
}

/// Checks the optional members and properties of a complete mask.
template <class T>
consteval bool explain_options() {
  constexpr bool by_head = !HasByHead<T> || requires(const T& mask) {
    { mask.by_head() } -> std::same_as<bool>;
  };
  static_assert(by_head,
                "a mask type's `by_head` has to be declared `bool by_head() const`, public and const");
  constexpr bool text_is_all = !HasTextIsAll<T> || requires(const T& mask) {
    { mask.text_is_all() } -> std::same_as<bool>;
  };
  static_assert(
      text_is_all,
      "a mask type's `text_is_all` has to be declared `bool text_is_all() const`, public and const");
  constexpr bool copied = std::is_copy_constructible_v<T>;
  static_assert(copied,
                "a mask keeps a copy of its type, which this one does not allow: hold what it needs by "
                "std::shared_ptr");
  return true;
}

}  // namespace mask_detail
}  // namespace fovea
