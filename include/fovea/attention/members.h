// Tests whether a type has a member of a given name, for error texts about types that do not fit.
#pragma once

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
