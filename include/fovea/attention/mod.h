// Score mods: element-wise changes of a score, after the scale and before the mask. Any number of them apply
// in the order given.
//
// A mod of your own is a lambda over a score, the site, and its learnable arguments:
//
//   const Mod decay = make_mod("decay", {"slope"}, [](auto score, Site at, auto slope) {
//     return score - slope * (at.query - at.key);
//   });
//
// The captured values are constants. An argument arrives with each call as a tensor of 4 axes, [batch, heads,
// query_len, key_len], each of which is 1 where it is shared. So a scalar, a slope a head, a dense bias and a
// gate a key are all the same case.
//
// The compiler that sees the lambda compiles it for each instruction set, into loops that -O2 turns into
// vector instructions. Write it with the functions of elementwise.h, because libm's do not vectorise, and
// without branches (`where`). The derivatives come from dual numbers. The library sums them in an order fixed
// by the shape alone.
//
// The same value serves as a weight mod (AttentionSpec::weight_mods). It then gets 1 as its score, and the
// weight is multiplied by its result.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/attention/elementwise.h"
#include "fovea/attention/mod_checks.h"

namespace fovea {

/// The buffers of a ModTile have room for a number of scores rounded up to a multiple of this.
inline constexpr int mod_lanes = 16;

/// The scores of `rows` queries and `count` keys. The rows of every buffer are `stride` apart, except in
/// arguments that all rows share. Elements behind `count` hold anything.
template <class T>
struct ModTile {
  std::int64_t rows = 0, count = 0, stride = 0;
  Site first;                 ///< the site of the first row and first key
  const T* scores = nullptr;  ///< before the mod
  T* result = nullptr;        ///< after it; may be `scores`
  struct Argument {
    const T* values = nullptr;
    std::int64_t row_stride = 0;
  };
  std::array<Argument, max_mod_arguments> arguments;
  const T* d_result = nullptr;  ///< derivative of the loss by the result; 0 for scores that have no influence
  T* d_scores = nullptr;        ///< derivative by the score; may be d_result
  std::array<T*, max_mod_arguments>
      d_arguments{};  ///< derivative by each argument, one element a score; null: not wanted
};

/// The functions of one mod for one instruction set and type.
template <class T>
struct ModCode {
  void (*apply)(const void* mod, const ModTile<T>&) = nullptr;
  void (*gradient)(const void* mod, const ModTile<T>&) = nullptr;
};
enum class ModIsa : std::uint8_t { any, avx2, avx512 };

/// The interface of a mod; immutable.
class ModNode {
 public:
  virtual ~ModNode() = default;
  virtual ModCode<float> code_f32(ModIsa isa) const = 0;
  virtual ModCode<double> code_f64(ModIsa isa) const = 0;
  /// The pointer that the functions get as `mod`.
  virtual const void* self() const = 0;
  /// "softcap(50)".
  virtual std::string print() const = 0;
  virtual const std::vector<std::string>& arguments() const = 0;
  /// Where the mod's one argument is a table [batch or 1, heads or 1, 1, entries] looked up by distance: its
  /// number of entries. 0: there is no table.
  virtual std::int64_t entries() const { return 0; }
  /// True where the table has one row a query: [batch or 1, heads or 1, query_len or 1, entries].
  virtual bool table_by_query() const { return false; }
  /// True where the mod hides keys by scores of -infinity. A later mod could make finite scores of them, so
  /// only mods that also hide keys may come after it.
  virtual bool hides() const { return false; }
  /// The values with which a layer begins to learn the arguments.
  virtual ArgumentDeclaration::Start start() const { return ArgumentDeclaration::Start::told; }
  /// The entry of the table for distance = query - key.
  virtual std::int64_t entry(std::int64_t distance) const {
    static_cast<void>(distance);
    return 0;
  }
};

/// A score mod: a small immutable value, cheap to copy.
class Mod {
 public:
  /// Throws InvalidArgument for nullptr or more than max_mod_arguments arguments.
  explicit Mod(std::shared_ptr<const ModNode> node);
  /// A type with a to_mod is a mod too: the built-in ones below, and yours, found by argument-dependent
  /// look-up.
  template <class T>
  requires(!std::is_base_of_v<Mod, T> && requires(const T& t) { to_mod(t); })
      Mod(const T& mod)  // NOLINT(google-explicit-constructor)
      : Mod(to_mod(mod)) {}
  /// A lambda is not a mod yet. It stops the compilation with a sentence that says so.
  template <class T>
  requires(mod_detail::BareFunction<T> && !std::is_base_of_v<Mod, T> && !requires(const T& t) { to_mod(t); })
      Mod(const T&) {  // NOLINT(google-explicit-constructor)
    constexpr bool is_function = mod_detail::BareFunction<T>;
    static_assert(!is_function,
                  "a lambda becomes a mod by its name and those of its arguments: make_mod(\"decay\", "
                  "{\"slope\"}, [](auto score, Site at, auto slope) { ... })");
  }
  const ModNode& node() const noexcept { return *node_; }

 private:
  std::shared_ptr<const ModNode> node_;
};

using Mods = std::vector<Mod>;

/// The declarations of the mod's arguments, in their order: four axes each, every one of which may be 1. The
/// last axis of a table has the number of its entries.
std::vector<ArgumentDeclaration> declarations(const ModNode& mod);

/// "softcap(50)", "alibi", "relative(32,128,causal)", or the name given to make_mod.
std::string to_string(const Mod& mod);

namespace mod_detail {

#if defined(__x86_64__) && defined(__GNUC__)
#define FOVEA_MOD_AVX2 __attribute__((target("avx2,fma"), flatten))
#define FOVEA_MOD_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"), flatten))
#else
#define FOVEA_MOD_AVX2
#define FOVEA_MOD_AVX512
#endif
#define FOVEA_MOD_INLINE inline __attribute__((always_inline))

// Sixteen scores at a time, in arrays of fixed size. GCC vectorises these at -O2, where it does not vectorise
// the loop itself.
template <class T, class F, std::size_t... I>
FOVEA_MOD_INLINE void apply(const F& f, const ModTile<T>& t, std::index_sequence<I...>) {
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t j = 0; j < t.count; j += mod_lanes) {
      T x[mod_lanes], y[mod_lanes], a[sizeof...(I) + 1][mod_lanes];
      std::memcpy(x, t.scores + r * t.stride + j, sizeof x);
      (std::memcpy(a[I], t.arguments[I].values + r * t.arguments[I].row_stride + j, sizeof a[I]), ...);
      const auto query = static_cast<std::int32_t>(t.first.query + r),
                 key = static_cast<std::int32_t>(t.first.key + j);
      const auto last = static_cast<std::int32_t>(t.count - j - 1);  // elements behind count get the last
                                                                     // site
      for (std::int32_t l = 0; l < mod_lanes; ++l)
        y[l] = f(x[l], Site{t.first.batch, t.first.head, query, key + std::min(l, last)}, a[I][l]...);
      std::memcpy(t.result + r * t.stride + j, y, sizeof y);
    }
  }
}

// One pass for the score, and one for each argument whose derivative is wanted.
template <std::size_t Seed, class T, class F, std::size_t... I>
FOVEA_MOD_INLINE void derivative(const F& f, const ModTile<T>& t, T* to, std::index_sequence<I...>) {
  using elementwise::Dual;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t j = 0; j < t.count; j += mod_lanes) {
      T x[mod_lanes], y[mod_lanes], g[mod_lanes], a[sizeof...(I) + 1][mod_lanes];
      std::memcpy(x, t.scores + r * t.stride + j, sizeof x);
      std::memcpy(g, t.d_result + r * t.stride + j, sizeof g);
      (std::memcpy(a[I], t.arguments[I].values + r * t.arguments[I].row_stride + j, sizeof a[I]), ...);
      const auto query = static_cast<std::int32_t>(t.first.query + r),
                 key = static_cast<std::int32_t>(t.first.key + j);
      const auto last = static_cast<std::int32_t>(t.count - j - 1);  // elements behind count get the last
                                                                     // site
      for (std::int32_t l = 0; l < mod_lanes; ++l) {
        const Dual<T> result = f(Dual<T>(x[l], Seed == 0 ? T(1) : T(0)),
                                 Site{t.first.batch, t.first.head, query, key + std::min(l, last)},
                                 Dual<T>(a[I][l], Seed == I + 1 ? T(1) : T(0))...);
        y[l] = elementwise::where(g[l] == T(0), T(0), g[l] * result.derivative);  // a hidden score may be NaN
      }
      std::memcpy(to + r * t.stride + j, y, sizeof y);
    }
  }
}

template <class T, class F, std::size_t... I>
FOVEA_MOD_INLINE void gradient(const F& f, const ModTile<T>& t, std::index_sequence<I...> all) {
  ((t.d_arguments[I] ? derivative<I + 1>(f, t, t.d_arguments[I], all) : void()), ...);
  derivative<0>(f, t, t.d_scores, all);  // last: d_scores may be d_result
}

template <class T, class F, std::size_t N>
void apply_any(const void* f, const ModTile<T>& t) {
  apply(*static_cast<const F*>(f), t, std::make_index_sequence<N>());
}
template <class T, class F, std::size_t N>
FOVEA_MOD_AVX2 void apply_avx2(const void* f, const ModTile<T>& t) {
  apply(*static_cast<const F*>(f), t, std::make_index_sequence<N>());
}
template <class T, class F, std::size_t N>
FOVEA_MOD_AVX512 void apply_avx512(const void* f, const ModTile<T>& t) {
  apply(*static_cast<const F*>(f), t, std::make_index_sequence<N>());
}
template <class T, class F, std::size_t N>
void gradient_any(const void* f, const ModTile<T>& t) {
  gradient(*static_cast<const F*>(f), t, std::make_index_sequence<N>());
}
template <class T, class F, std::size_t N>
FOVEA_MOD_AVX2 void gradient_avx2(const void* f, const ModTile<T>& t) {
  gradient(*static_cast<const F*>(f), t, std::make_index_sequence<N>());
}
template <class T, class F, std::size_t N>
FOVEA_MOD_AVX512 void gradient_avx512(const void* f, const ModTile<T>& t) {
  gradient(*static_cast<const F*>(f), t, std::make_index_sequence<N>());
}

#undef FOVEA_MOD_AVX2
#undef FOVEA_MOD_AVX512
#undef FOVEA_MOD_INLINE

template <class T, class F, std::size_t N>
ModCode<T> code(ModIsa isa) {
  switch (isa) {
    case ModIsa::avx512:
      return {apply_avx512<T, F, N>, gradient_avx512<T, F, N>};
    case ModIsa::avx2:
      return {apply_avx2<T, F, N>, gradient_avx2<T, F, N>};
    case ModIsa::any:
      break;
  }
  return {apply_any<T, F, N>, gradient_any<T, F, N>};
}

template <class F, std::size_t N>
class LambdaMod : public ModNode {
 public:
  LambdaMod(std::string name, std::array<const char*, N> arguments, F f,
            ArgumentDeclaration::Start start = ArgumentDeclaration::Start::told)
      : name_(std::move(name)),
        arguments_(arguments.begin(), arguments.end()),
        f_(std::move(f)),
        start_(start) {}
  ModCode<float> code_f32(ModIsa isa) const override { return code<float, F, N>(isa); }
  ModCode<double> code_f64(ModIsa isa) const override { return code<double, F, N>(isa); }
  const void* self() const override { return &f_; }
  std::string print() const override { return name_; }
  const std::vector<std::string>& arguments() const override { return arguments_; }
  ArgumentDeclaration::Start start() const override { return start_; }

 private:
  std::string name_;
  std::vector<std::string> arguments_;
  F f_;
  ArgumentDeclaration::Start start_;
};

}  // namespace mod_detail

/// Makes a mod from a lambda (score, Site, argument...) -> score, generic in its numbers. `arguments` names
/// the lambda's arguments in their order; see the head of this file. `start` says with which values a layer
/// begins to learn them. A lambda that does not fit stops the compilation with a sentence that says why
/// (mod_checks.h).
template <std::size_t N, class F>
Mod make_mod(std::string name, const char* const (&arguments)[N], F&& f,
             ArgumentDeclaration::Start start = ArgumentDeclaration::Start::told) {
  using Kept = std::decay_t<F>;
  if constexpr (mod_detail::explain<mod_detail::fault_of<F, Kept, N>()>()) {
    return Mod(std::make_shared<mod_detail::LambdaMod<Kept, N>>(std::move(name), std::to_array(arguments),
                                                                std::forward<F>(f), start));
  } else {
    return Mod(nullptr);
  }
}
template <class F>
Mod make_mod(std::string name, F&& f) {
  using Kept = std::decay_t<F>;
  if constexpr (mod_detail::explain<mod_detail::fault_of<F, Kept, 0>()>()) {
    return Mod(std::make_shared<mod_detail::LambdaMod<Kept, 0>>(std::move(name), std::array<const char*, 0>(),
                                                                std::forward<F>(f)));
  } else {
    return Mod(nullptr);
  }
}
/// Argument names that are not a list in braces stop the compilation too.
template <class Names, class F>
Mod make_mod(std::string, Names&&, F&&) {
  static_assert(mod_detail::never<Names>,
                "make_mod: the argument names are a list in braces: make_mod(\"decay\", {\"slope\"}, "
                "[](auto score, Site at, auto slope) { return score - slope * (at.query - at.key); })");
  return Mod(nullptr);
}

// The built-in ones.

/// cap·tanh(score / cap): scores stay inside (-cap, cap) (Gemma 2, arXiv 2408.00118). cap > 0.
struct SoftCap {
  double cap = 50.0;
};
/// score - slope·(query - key) (Press et al. 2022, arXiv 2108.12409). Argument "slope", usually [1, heads, 1,
/// 1].
struct AlibiBias {};
/// The slopes of the paper for a number of heads: 2^(-8/n), 2^(-16/n), ... for a power of two. For other
/// numbers of heads they are interleaved with those of the next power of two.
std::vector<double> alibi_slopes(std::int64_t num_heads);
/// score + bias. Argument "bias", [batch or 1, heads or 1, query_len or 1, key_len or 1].
struct DenseBias {};
/// score + table[bucket(query - key)] (T5, Raffel et al. 2020, arXiv 1910.10683). Each near distance has its
/// own bucket; far distances share logarithmic ones. Argument "table", [1, heads or 1, 1, buckets].
/// Bidirectional halves the buckets between the two directions. Causal gives keys ahead of the query the
/// bucket of distance 0.
struct RelativeBias {
  enum class Direction : std::uint8_t { bidirectional, causal };
  std::int64_t buckets = 32, max_distance = 128;
  Direction direction = Direction::bidirectional;
};
std::int64_t relative_bucket(const RelativeBias& bias, std::int64_t distance);

/// score + Σ_{l = j+1..p} log f_l: gates computed from the data make far keys fade (FoX, Lin et al. 2025,
/// arXiv 2503.02130). Arguments "query" [.., query_len, 1] and "key" [.., 1, key_len]; both are the running
/// sums of log f, from mechanisms/forget.h. Only together with a causal mask.
struct ForgetGate {};

/// score / value. As value goes to 0, softmax becomes the argmax. value > 0.
struct Temperature {
  double value = 1.0;
};
/// score / temperature, learned. Argument "temperature", usually [1, heads, 1, 1].
struct LearnedTemperature {};

/// score + table[query row][distance], with distances cut to [-max_distance, max_distance] and entry
/// max_distance + query - key. The score depends on the query and on the distance of the key (Shaw et al.
/// 2018, arXiv 1803.02155). With the table (q + w)·r of mechanisms/relative_key.h it is Transformer-XL's (Dai
/// et al. 2019, arXiv 1901.02860). Argument "table", [batch or 1, heads or 1, query_len or 1, 2·max_distance
/// + 1].
struct RelativeKeyBias {
  std::int64_t max_distance = 128;
};

/// Keeps the keys within `reach` of a center that the query chose, and hides the others (Luong et al. 2015,
/// arXiv 1508.04025, section 3.2, local-p). Argument "center", [batch, heads or 1, query_len, 1], a position
/// in key coordinates, from mechanisms/local.h. The mod makes scores of -inf, so only mods that also hide
/// keys may come after it. reach >= 0.
struct LocalWindow {
  double reach = 10.0;
};
/// A weight mod: weight · exp(-(key - center)² / 2·deviation²) (same section, eq. 10; the paper's deviation
/// is reach / 2). Argument "center", as above; its gradient trains the network that predicted it. deviation >
/// 0.
struct LocalGaussian {
  double deviation = 5.0;
};

Mod to_mod(const SoftCap& cap);
Mod to_mod(const Temperature& temperature);
Mod to_mod(LearnedTemperature);
Mod to_mod(const RelativeKeyBias& bias);
Mod to_mod(const LocalWindow& window);
Mod to_mod(const LocalGaussian& gaussian);
Mod to_mod(AlibiBias);
Mod to_mod(DenseBias);
Mod to_mod(ForgetGate);
Mod to_mod(const RelativeBias& bias);

}  // namespace fovea
