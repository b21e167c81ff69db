#include "attention/names.h"

namespace fovea {
namespace {

const ScoreName scores[] = {
    {"scaled-dot", ScaledDot{}},     {"dot", Dot{}},
    {"bilinear", Bilinear{}},        {"additive", Additive{}},
    {"low-rank", LowRankBilinear{}}, {"location", Location{}},
    {"coverage", Coverage{}},
};
static_assert(std::size(scores) == std::variant_size_v<Score>);

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
constexpr NormalizerName plain(const char* name) {
  return {
      name, nullptr, 0.0, [](double) -> Normalizer { return N{}; },
      [](const Normalizer& n) { return std::holds_alternative<N>(n) ? std::optional(0.0) : std::nullopt; }};
}
template <auto Member, class N>
constexpr NormalizerName with(const char* name, const char* number, N absent) {
  return {name, number, absent.*Member,
          [](double value) -> Normalizer {
            N result;
            result.*Member = value;
            return result;
          },
          [](const Normalizer& n) {
            const N* given = std::get_if<N>(&n);
            return given ? std::optional(given->*Member) : std::nullopt;
          }};
}

constexpr NormalizerName normalizers[] = {
    plain<Softmax>("softmax"),
    plain<SoftmaxWithSink>("sink"),
    with<&Sigmoid::bias>("sigmoid", "a bias", Sigmoid{}),
    plain<Sparsemax>("sparsemax"),
    with<&Entmax::alpha>("entmax", "an alpha", Entmax{}),
    plain<HardArgmax>("argmax"),
    plain<HardSample>("sample"),
    with<&GumbelSample::temperature>("gumbel", "a temperature", GumbelSample{}),
    plain<LinearChain>("chain"),
};
static_assert(std::size(normalizers) == std::variant_size_v<Normalizer>);

}  // namespace

std::span<const ScoreName> score_names() {
  return scores;
}

std::span<const ModName> mod_names() {
  return mods;
}

std::span<const NormalizerName> normalizer_names() {
  return normalizers;
}

}  // namespace fovea
