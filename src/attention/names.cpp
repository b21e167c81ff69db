#include "attention/names.h"

#include <type_traits>
#include <utility>
#include <vector>

namespace fovea {
namespace {

template <std::size_t... I>
std::array<ScoreName, sizeof...(I)> score_rows(std::index_sequence<I...>) {
  return {ScoreName{std::variant_alternative_t<I, Score>::definition().name,
                    std::variant_alternative_t<I, Score>{}}...};
}

using Kind = ModNumber::Kind;
using Direction = RelativeBias::Direction;

// Every mod's text begins with its name.
std::string name_of(const Mod& mod) {
  const std::string text = to_string(mod);
  return text.substr(0, text.find('('));
}
template <class M>
ModName row() {
  return {name_of(M{}), {}, nullptr, [] { return Mod(M{}); }};
}

// The members of a mod that its parentheses hold. Their types say how they are read.
template <class M, class T>
constexpr Kind kind_of(T M::*) {
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, std::int64_t> || std::is_same_v<T, Direction>);
  return std::is_same_v<T, double>      ? Kind::real
         : std::is_same_v<T, Direction> ? Kind::direction
                                        : Kind::count;
}
template <class T>
T read(const ModNumbers& numbers, std::size_t n) {
  if constexpr (std::is_same_v<T, double>) return numbers.real[n];
  if constexpr (std::is_same_v<T, std::int64_t>) return numbers.count[n];
  if constexpr (std::is_same_v<T, Direction>) return numbers.direction;
}
template <class M, auto... Members>
ModName row(std::array<const char*, sizeof...(Members)> what) {
  ModName made{name_of(M{}), {}, nullptr, nullptr};
  std::size_t n = 0;
  ((made.numbers[n] = {what[n], kind_of(Members)}, ++n), ...);
  made.make = [](const ModNumbers& numbers) -> Mod {
    M mod;
    std::size_t at = 0;
    ((mod.*Members = read<std::decay_t<decltype(mod.*Members)>>(numbers, at++)), ...);
    return mod;
  };
  return made;
}
// One name with two meanings: without parentheses it is Bare.
template <class Bare>
ModName or_bare(ModName with_numbers) {
  with_numbers.bare = row<Bare>().bare;
  return with_numbers;
}

std::vector<ModName> mod_rows() {
  return {
      row<SoftCap, &SoftCap::cap>({"a cap"}),
      or_bare<LearnedTemperature>(row<Temperature, &Temperature::value>({"a temperature"})),
      row<AlibiBias>(),
      row<SymmetricAlibiBias>(),
      row<DenseBias>(),
      row<RelativeBias, &RelativeBias::buckets, &RelativeBias::max_distance, &RelativeBias::direction>(
          {"a number of buckets", "a distance", "a direction"}),
      row<RelativeKeyBias, &RelativeKeyBias::max_distance>({"a distance"}),
      row<ForgetGate>(),
      row<LocalWindow, &LocalWindow::reach>({"a reach"}),
      row<LocalGaussian, &LocalGaussian::deviation>({"a deviation"}),
  };
}

template <class N>
NormalizerName normalizer_row() {
  if constexpr (requires { N::number; }) {
    return {N::name, N::number_text, N{}.*N::number,
            [](double value) -> Normalizer {
              N result;
              result.*N::number = value;
              return result;
            },
            [](const Normalizer& n) {
              const N* given = std::get_if<N>(&n);
              return given ? std::optional(given->*N::number) : std::nullopt;
            }};
  } else {
    return {
        N::name, nullptr, 0.0, [](double) -> Normalizer { return N{}; },
        [](const Normalizer& n) { return std::holds_alternative<N>(n) ? std::optional(0.0) : std::nullopt; }};
  }
}
template <std::size_t... I>
std::array<NormalizerName, sizeof...(I)> normalizer_rows(std::index_sequence<I...>) {
  return {normalizer_row<std::variant_alternative_t<I, Normalizer>>()...};
}

}  // namespace

std::span<const ScoreName> score_names() {
  static const auto rows = score_rows(std::make_index_sequence<std::variant_size_v<Score>>());
  return rows;
}

std::span<const ModName> mod_names() {
  static const std::vector<ModName> rows = mod_rows();
  return rows;
}

std::span<const NormalizerName> normalizer_names() {
  static const auto rows = normalizer_rows(std::make_index_sequence<std::variant_size_v<Normalizer>>());
  return rows;
}

}  // namespace fovea
