// What the engine asks of any normaliser.
#pragma once

#include <type_traits>

#include "fovea/attention/argument.h"
#include "fovea/attention/normalizer.h"

namespace fovea {

namespace detail {
/// What `read` finds in the normaliser that is held; `otherwise` where that normaliser has no such member.
template <class T, class Read>
constexpr T member_or(const Normalizer& normalizer, T otherwise, Read read) {
  return std::visit(
      [&]<class N>(const N& own) -> T {
        if constexpr (std::is_invocable_v<Read, const N&>)
          return read(own);
        else
          return otherwise;
      },
      normalizer);
}
}  // namespace detail

inline NormalizerKind kind_of(const Normalizer& normalizer) {
  return std::visit([]<class N>(const N&) { return N::kind; }, normalizer);
}
/// True where weights over a part of the keys cannot be merged with weights over the rest.
inline bool is_whole_row(const Normalizer& normalizer) {
  return detail::member_or(normalizer, false,
                           []<class N>(const N&) -> decltype(N::is_whole_row) { return N::is_whole_row; });
}
/// True where the scores of a row that sees n keys are multiplied by the normaliser's argument and by ln n.
/// Plans do this with a mod, which every kernel runs before the loop of this kind.
inline bool counts_keys(const Normalizer& normalizer) {
  return detail::member_or(normalizer, false,
                           []<class N>(const N&) -> decltype(N::counts_keys) { return N::counts_keys; });
}
/// The reason why results for parts of the keys cannot be merged, for a normaliser that does not need whole
/// rows; nullptr if they can.
inline const char* no_parts(const Normalizer& normalizer) {
  return detail::member_or<const char*>(
      normalizer, nullptr, []<class N>(const N&) -> decltype(N::no_parts) { return N::no_parts; });
}
/// True where weights are drawn by AttentionInputs::sample_seed.
inline bool draws(const Normalizer& normalizer) {
  return detail::member_or(normalizer, false,
                           []<class N>(const N&) -> decltype(N::draws) { return N::draws; });
}
inline WeightDerivative derivative_of(const Normalizer& normalizer) {
  return detail::member_or(normalizer, WeightDerivative::exact,
                           []<class N>(const N&) -> decltype(N::derivative) { return N::derivative; });
}
/// Whether the gradient of the normaliser's argument is computed from the log-sum-exp.
inline bool gradient_reads_log_sum_exp(const Normalizer& normalizer) {
  return detail::member_or(normalizer, false,
                           []<class N>(const N&) -> decltype(N::gradient_reads_log_sum_exp) {
                             return N::gradient_reads_log_sum_exp;
                           });
}
/// The normaliser's number: a bias, an alpha, a temperature. 0 if it has none.
inline double number_of(const Normalizer& normalizer) {
  const double fixed = detail::member_or(
      normalizer, 0.0, []<class N>(const N&) -> decltype(N::fixed_number) { return N::fixed_number; });
  return detail::member_or(
      normalizer, fixed,
      []<class N>(const N& own) -> std::decay_t<decltype(own.*N::number)> { return own.*N::number; });
}
/// The numbers that the normaliser takes, in words, if its own is not one of them; otherwise nullptr.
inline const char* refused_number(const Normalizer& normalizer) {
  return detail::member_or<const char*>(normalizer, nullptr, []<class N>(const N& own) -> decltype(N::taken) {
    return N::takes(own.*N::number) ? nullptr : N::taken;
  });
}
inline std::span<const ArgumentDeclaration> arguments(const Normalizer& normalizer) {
  return detail::member_or(normalizer, std::span<const ArgumentDeclaration>(),
                           []<class N>(const N&) -> decltype(N::arguments()) { return N::arguments(); });
}

}  // namespace fovea
