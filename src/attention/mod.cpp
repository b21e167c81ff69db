#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <typeinfo>
#include <utility>

#include "core/shortest.h"
#include "fovea/attention/make_mod.h"
#include "fovea/core/error.h"

namespace fovea {

void mod_detail::check_names(const std::string& mod, const std::vector<ArgumentDeclaration>& arguments) {
  if (mod.empty()) throw InvalidArgument("make_mod", "name", "a name", "none");
  for (auto one = arguments.begin(); one != arguments.end(); ++one) {
    const bool again =
        std::any_of(arguments.begin(), one, [&](const auto& b) { return b.name == one->name; });
    if (one->name.empty() || again)
      throw InvalidArgument("make_mod", "arguments[" + std::to_string(one - arguments.begin()) + "]",
                            "a name of its own", again ? "'" + one->name + "' again" : "none");
  }
}

namespace {

auto add_bias() {
  return [](auto score, Site, auto bias) { return score + bias; };
}
using AddBias = decltype(add_bias());
using Start = ArgumentDeclaration::Start;

ArgumentDeclaration starting(ArgumentDeclaration argument, Start start) {
  argument.start = start;
  return argument;
}
// One number a head, usually; any axis may be longer.
ArgumentDeclaration by_head(std::string name, Start start) {
  ArgumentDeclaration argument = mod_argument(std::move(name));
  argument.written = "h";
  return starting(std::move(argument), start);
}
ArgumentDeclaration slopes() {
  ArgumentDeclaration argument = by_head("slope", Start::computed);
  argument.start_values = alibi_slopes;
  return argument;
}
// What comes with each call, computed from the data.
ArgumentDeclaration computed(std::string name, std::string_view axes) {
  return starting(mod_argument(std::move(name), axes), Start::given);
}
ArgumentDeclaration bias_table(std::int64_t buckets) {
  ArgumentDeclaration table = mod_table("table", buckets);
  table.written = "hk";
  return starting(std::move(table), Start::zero);
}

// A lambda whose captures the text tells.
template <class F, std::size_t N>
class ToldMod final : public mod_detail::LambdaMod<F, N> {
 public:
  using mod_detail::LambdaMod<F, N>::LambdaMod;
  bool text_is_all() const override { return true; }
};
template <class F>
Mod told_mod(std::string text, F f) {
  return Mod(
      std::make_shared<ToldMod<F, 0>>(std::move(text), std::vector<ArgumentDeclaration>(), std::move(f)));
}
template <class F>
Mod told_mod(std::string text, ArgumentDeclaration argument, F f) {
  return Mod(
      std::make_shared<ToldMod<F, 1>>(std::move(text), std::vector{std::move(argument)}, std::move(f)));
}

class RelativeBiasMod final : public mod_detail::LambdaMod<AddBias, 1> {
 public:
  explicit RelativeBiasMod(const RelativeBias& bias)
      : LambdaMod("relative(" + std::to_string(bias.buckets) + "," + std::to_string(bias.max_distance) +
                      (bias.direction == RelativeBias::Direction::causal ? ",causal)" : ",bidirectional)"),
                  {bias_table(bias.buckets)}, add_bias()),
        bias_(bias) {
    for (std::int64_t distance = -bias.max_distance; distance <= bias.max_distance; ++distance)
      entries_.push_back(relative_bucket(bias, distance));
  }
  std::int64_t entries() const override { return bias_.buckets; }
  std::int64_t entry(std::int64_t distance) const override {
    const std::int64_t far = bias_.max_distance;  // this and all larger distances have the last bucket
    return entries_[static_cast<std::size_t>(std::clamp(distance, -far, far) + far)];
  }

 private:
  RelativeBias bias_;
  std::vector<std::int64_t> entries_;
};

}  // namespace

namespace {

class RelativeKeyMod final : public mod_detail::LambdaMod<AddBias, 1> {
 public:
  explicit RelativeKeyMod(std::int64_t farthest)
      : LambdaMod("relative-key(" + std::to_string(farthest) + ")",
                  {starting(mod_table("table", 2 * farthest + 1, true), Start::given)}, add_bias()),
        farthest_(farthest) {}
  std::int64_t entries() const override { return 2 * farthest_ + 1; }
  std::int64_t entry(std::int64_t distance) const override {
    return std::clamp(distance, -farthest_, farthest_) + farthest_;
  }

 private:
  std::int64_t farthest_;
};

// Kernels index the axes of a mod's argument by batch entry, head, query and key. Any other meaning of an
// axis would read past the argument.
void check_axes(const ModNode& node, const ArgumentDeclaration& argument) {
  using Sizes = ArgumentSizes;
  constexpr std::array<std::pair<const char*, std::int64_t Sizes::*>, 4> meanings{
      {{"batch", &Sizes::batch},
       {"heads", &Sizes::num_query_heads},
       {"query_len", &Sizes::query_len},
       {"key_len", &Sizes::key_len}}};
  const std::string name = "the argument '" + argument.name + "' of '" + node.print() + "'";
  if (argument.axes.size() != meanings.size())
    throw InvalidArgument("Mod", "node", "four axes of " + name, std::to_string(argument.axes.size()));
  for (std::size_t n = 0; n < meanings.size(); ++n) {
    const ArgumentAxis& axis = argument.axes[n];
    const bool table = n == 3 && node.entries() > 0;
    const std::int64_t number = table ? node.entries() : 1;
    const bool fits = axis.size == nullptr ? axis.number == number
                                           : !table && axis.size == meanings[n].second &&
                                                 axis.fit == ArgumentAxis::Fit::or_one;
    if (!fits)
      throw InvalidArgument(
          "Mod", "node",
          "axis " + std::to_string(n) + " of " + name + " to be " +
              (table ? std::string() : std::string(meanings[n].first) + " or 1, or always ") +
              std::to_string(number),
          axis.size ? "another size of the call" : std::to_string(axis.number));
  }
}

double positive(const char* mod, const char* argument, double value) {
  if (!(value >= 1e-30) || !(value <= 1e30))  // the number and its inverse must both be floats
    throw InvalidArgument(mod, argument, "a number in [1e-30, 1e30]", shortest(value));
  return value;
}

}  // namespace

Mod::Mod(std::shared_ptr<const ModNode> node) : node_(std::move(node)) {
  if (!node_) throw InvalidArgument("Mod", "node", "a mod", "a null pointer");
  if (node_->arguments().size() > static_cast<std::size_t>(max_mod_arguments))
    throw InvalidArgument("Mod", "node", "at most " + std::to_string(max_mod_arguments) + " arguments",
                          std::to_string(node_->arguments().size()));
  if (node_->entries() > 0 && node_->arguments().size() != 1)
    throw InvalidArgument("Mod", "node", "exactly one argument, because the mod is a table",
                          std::to_string(node_->arguments().size()));
  for (const ArgumentDeclaration& argument : node_->arguments()) check_axes(*node_, argument);
}

ArgumentDeclaration mod_argument(std::string name, std::string_view longer) {
  using Sizes = ArgumentSizes;
  const auto axis = [&](char of, std::int64_t Sizes::*size) {
    return longer.find(of) == std::string_view::npos
               ? ArgumentAxis{.number = 1}
               : ArgumentAxis{.size = size, .fit = ArgumentAxis::Fit::or_one};
  };
  return {.name = std::move(name),
          .axes = {axis('b', &Sizes::batch), axis('h', &Sizes::num_query_heads), axis('q', &Sizes::query_len),
                   axis('k', &Sizes::key_len)},
          .written = longer,
          .layout = ArgumentDeclaration::Layout::any};
}

ArgumentDeclaration mod_table(std::string name, std::int64_t entries, bool by_query) {
  ArgumentDeclaration table = mod_argument(std::move(name), by_query ? "bhq" : "bh");
  table.axes[3] = {.number = entries};
  table.written = "bhqk";
  return table;
}

std::string to_string(const Mod& mod) {
  return mod.node().print();
}

std::vector<double> alibi_slopes(std::int64_t num_heads) {
  if (num_heads < 1)
    throw InvalidArgument("alibi_slopes", "num_heads", "at least 1", std::to_string(num_heads));
  std::int64_t power = 1;
  while (power * 2 <= num_heads) power *= 2;
  std::vector<double> slopes;
  for (std::int64_t h = 1; h <= power; ++h)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  for (std::int64_t h = 1; static_cast<std::int64_t>(slopes.size()) < num_heads; h += 2)
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(h) / static_cast<double>(power)));
  return slopes;
}

std::int64_t relative_bucket(const RelativeBias& bias, std::int64_t distance) {
  std::int64_t buckets = bias.buckets, first = 0;
  if (bias.direction == RelativeBias::Direction::bidirectional) {
    buckets /= 2;
    if (distance < 0) first = buckets;  // for keys ahead of the query
    distance = std::abs(distance);
  } else {
    distance = std::max<std::int64_t>(distance, 0);
  }
  const std::int64_t near = buckets / 2;
  if (distance < near) return first + distance;
  const double position = std::log(static_cast<double>(distance) / static_cast<double>(near)) /
                          std::log(static_cast<double>(bias.max_distance) / static_cast<double>(near));
  const auto far = near + static_cast<std::int64_t>(position * static_cast<double>(buckets - near) +
                                                    1e-9);  // so that exact powers reach their bucket
  return first + std::min(far, buckets - 1);
}

bool operator==(const Mod& a, const Mod& b) {
  const ModNode &x = a.node(), &y = b.node();
  return &x == &y || (typeid(x) == typeid(y) && x.text_is_all() && y.text_is_all() &&
                      x.print() == y.print() && x.arguments() == y.arguments());
}

Mod to_mod(const SoftCap& cap) {
  return told_mod("softcap(" + shortest(cap.cap) + ")",
                  [cap = positive("SoftCap", "cap", cap.cap)](auto score, Site) {
                    using T = elementwise::Scalar<decltype(score)>;
                    return elementwise::tanh(score * T(1.0 / cap)) * T(cap);
                  });
}

Mod to_mod(const Temperature& temperature) {
  const double inverse = 1.0 / positive("Temperature", "value", temperature.value);
  return told_mod("temperature(" + shortest(temperature.value) + ")", [inverse](auto score, Site) {
    return score * elementwise::Scalar<decltype(score)>(inverse);
  });
}

Mod to_mod(LearnedTemperature) {
  return make_mod("temperature", {by_head("temperature", Start::one)},
                  [](auto score, Site, auto temperature) { return score / temperature; });
}

Mod to_mod(const RelativeKeyBias& bias) {
  if (bias.max_distance < 0 || bias.max_distance > 1 << 20)
    throw InvalidArgument("RelativeKeyBias", "max_distance", "a distance in [0, 2^20]",
                          std::to_string(bias.max_distance));
  return Mod(std::make_shared<RelativeKeyMod>(bias.max_distance));
}

namespace {

// The same mod, marked as one that hides keys.
class HidingMod final : public ModNode {
 public:
  explicit HidingMod(Mod mod) : mod_(std::move(mod)) {}
  ModCode<float> code_f32(ModIsa isa) const override { return mod_.node().code_f32(isa); }
  ModCode<double> code_f64(ModIsa isa) const override { return mod_.node().code_f64(isa); }
  const void* self() const override { return mod_.node().self(); }
  std::string print() const override { return mod_.node().print(); }
  const std::vector<ArgumentDeclaration>& arguments() const override { return mod_.node().arguments(); }
  bool hides() const override { return true; }
  bool text_is_all() const override { return mod_.node().text_is_all(); }

 private:
  Mod mod_;
};

}  // namespace

Mod to_mod(const LocalWindow& window) {
  if (!(window.reach >= 0.0) || !(window.reach <= 1e30))
    throw InvalidArgument("LocalWindow", "reach", "a number in [0, 1e30]", shortest(window.reach));
  return Mod(std::make_shared<HidingMod>(told_mod(
      "local(" + shortest(window.reach) + ")", computed("center", "bhq"),
      [reach = window.reach](auto score, Site at, auto center) {
        using Number = decltype(score);
        using T = elementwise::Scalar<Number>;
        const T away = elementwise::abs(T(at.key) - elementwise::value_of(center));
        return elementwise::where(away <= T(reach), score, Number(-std::numeric_limits<T>::infinity()));
      })));
}

Mod to_mod(const LocalGaussian& gaussian) {
  const double deviation = positive("LocalGaussian", "deviation", gaussian.deviation);
  return told_mod("gaussian(" + shortest(deviation) + ")", computed("center", "bhq"),
                  [factor = -0.5 / (deviation * deviation)](auto weight, Site at, auto center) {
                    using T = elementwise::Scalar<decltype(weight)>;
                    const auto away = center - T(at.key);
                    return weight * elementwise::exp(away * away * T(factor));
                  });
}

Mod to_mod(AlibiBias) {
  return make_mod("alibi", {slopes()},
                  [](auto score, Site at, auto slope) { return score - slope * (at.query - at.key); });
}

Mod to_mod(SymmetricAlibiBias) {
  return make_mod("symmetric-alibi", {slopes()}, [](auto score, Site at, auto slope) {
    using T = elementwise::Scalar<decltype(score)>;
    return score - slope * elementwise::abs(T(at.query - at.key));
  });
}

Mod to_mod(DenseBias) {
  return make_mod("bias", {"bias"}, add_bias());
}

Mod to_mod(ForgetGate) {
  return make_mod("forget", {computed("query", "bhq"), computed("key", "bhk")},
                  [](auto score, Site, auto query, auto key) { return score + (query - key); });
}

Mod to_mod(const RelativeBias& bias) {
  constexpr std::int64_t most = 1 << 20;
  const std::int64_t ways = bias.direction == RelativeBias::Direction::bidirectional ? 2 : 1;
  if (bias.buckets < 2 * ways || bias.buckets > most)
    throw InvalidArgument("RelativeBias", "buckets", "a number in [" + std::to_string(2 * ways) + ", 2^20]",
                          std::to_string(bias.buckets));
  const std::int64_t near = bias.buckets / ways / 2;
  if (bias.max_distance <= near || bias.max_distance > most)
    throw InvalidArgument(
        "RelativeBias", "max_distance",
        "more than the " + std::to_string(near) + " distances with a bucket each, at most 2^20",
        std::to_string(bias.max_distance));
  return Mod(std::make_shared<RelativeBiasMod>(bias));
}

}  // namespace fovea
