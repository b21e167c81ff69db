#include "attention/names.h"

#include <utility>

namespace fovea {
namespace {

template <std::size_t... I>
std::array<ScoreName, sizeof...(I)> score_rows(std::index_sequence<I...>) {
  return {ScoreName{std::variant_alternative_t<I, Score>::definition().name,
                    std::variant_alternative_t<I, Score>{}}...};
}

using Kind = ModNumber::Kind;

template <class M>
Mod bare() {
  return M{};
}

const ModName mods[] = {
    {"softcap",
     {{{"a cap", Kind::real}}},
     [](const ModNumbers& n) -> Mod { return SoftCap{n.real[0]}; },
     nullptr},
    {"temperature",
     {{{"a temperature", Kind::real}}},
     [](const ModNumbers& n) -> Mod { return Temperature{n.real[0]}; },
     bare<LearnedTemperature>},
    {"alibi", {}, nullptr, bare<AlibiBias>},
    {"symmetric-alibi", {}, nullptr, bare<SymmetricAlibiBias>},
    {"bias", {}, nullptr, bare<DenseBias>},
    {"relative",
     {{{"a number of buckets", Kind::count}, {"a distance", Kind::count}, {"a direction", Kind::direction}}},
     [](const ModNumbers& n) -> Mod {
       return RelativeBias{n.count[0], n.count[1], n.direction};
     },
     nullptr},
    {"relative-key",
     {{{"a distance", Kind::count}}},
     [](const ModNumbers& n) -> Mod { return RelativeKeyBias{n.count[0]}; },
     nullptr},
    {"forget", {}, nullptr, bare<ForgetGate>},
    {"local",
     {{{"a reach", Kind::real}}},
     [](const ModNumbers& n) -> Mod { return LocalWindow{n.real[0]}; },
     nullptr},
    {"gaussian",
     {{{"a deviation", Kind::real}}},
     [](const ModNumbers& n) -> Mod { return LocalGaussian{n.real[0]}; },
     nullptr},
};

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
  return mods;
}

std::span<const NormalizerName> normalizer_names() {
  static const auto rows = normalizer_rows(std::make_index_sequence<std::variant_size_v<Normalizer>>());
  return rows;
}

}  // namespace fovea
