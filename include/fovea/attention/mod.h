// Score mods: element-wise changes of a score, after the scale and before the mask, any number in the order
// given.
//
// A mod of your own is a lambda over a score, the site, and its learnable arguments:
//
//   const Mod decay = make_mod("decay", {"slope"}, [](auto score, Site at, auto slope) {
//     return score - slope * (at.query - at.key);
//   });
//
// The captured values are constants. An argument arrives with each call as a tensor of 4 axes, [batch, heads,
// query_len, key_len], any of them 1 where it is shared: a scalar, a slope a head, a dense bias and a gate a
// key are one case. The lambda is compiled for each instruction set by the compiler that sees it, into loops
// that -O2 turns into vector instructions; write it with the functions of elementwise.h (libm's do not
// vectorise) and without branches (`where`). Its derivatives come from dual numbers. The library adds them
// up, in an order fixed by the shape alone.
//
// The same value serves as a weight mod (AttentionSpec::weight_mods): it then gets 1 for a score, and what it
// makes of it multiplies the weight.
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

/// Buffers of a ModTile have room up to a multiple of this many scores.
inline constexpr int mod_lanes = 16;

/// Scores of `rows` queries and `count` keys. Every buffer has rows `stride` apart (but for arguments that
/// all rows share). Lanes behind `count` hold anything.
template <class T>
struct ModTile {
  std::int64_t rows = 0, count = 0, stride = 0;
  Site first;                 ///< the site of the first row and key
  const T* scores = nullptr;  ///< before the mod
  T* result = nullptr;        ///< after it; may be `scores`
  struct Argument {
    const T* values = nullptr;
    std::int64_t row_stride = 0;
  };
  std::array<Argument, max_mod_arguments> arguments;
  const T* d_result = nullptr;  ///< derivative of the loss by the result; 0 where the score does not matter
  T* d_scores = nullptr;        ///< by the score; may be d_result
  std::array<T*, max_mod_arguments>
      d_arguments{};  ///< by each argument, an element a score; null: not wanted
};

/// One mod for one instruction set and type.
template <class T>
struct ModCode {
  void (*apply)(const void* mod, const ModTile<T>&) = nullptr;
  void (*gradient)(const void* mod, const ModTile<T>&) = nullptr;
};
enum class ModIsa : std::uint8_t { any, avx2, avx512 };

/// What a mod provides; immutable.
class ModNode {
 public:
  virtual ~ModNode() = default;
  virtual ModCode<float> code_f32(ModIsa isa) const = 0;
  virtual ModCode<double> code_f64(ModIsa isa) const = 0;
  /// What the functions get as `mod`.
  virtual const void* self() const = 0;
  /// "softcap(50)".
  virtual std::string print() const = 0;
  virtual const std::vector<std::string>& arguments() const = 0;
  /// Entries of the mod's one argument where it is a table [batch or 1, heads or 1, 1, entries] looked up by
  /// distance; 0: there is none.
  virtual std::int64_t entries() const { return 0; }
  /// True where the table has a row a query: [batch or 1, heads or 1, query_len or 1, entries].
  virtual bool table_by_query() const { return false; }
  /// True where the mod hides keys by scores of -infinity, of which a later mod may make numbers again: then
  /// none may follow but such as hide too.
  virtual bool hides() const { return false; }
  /// What a layer lets the arguments start as where it learns them.
  virtual ArgumentDeclaration::Start start() const { return ArgumentDeclaration::Start::told; }
  /// The entry for query - key.
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
  /// What has a to_mod (the built-in ones below; yours, found by argument-dependent look-up) is a mod too.
  template <class T>
  requires(!std::is_base_of_v<Mod, T> && requires(const T& t) { to_mod(t); })
      Mod(const T& mod)  // NOLINT(google-explicit-constructor)
      : Mod(to_mod(mod)) {}
  /// A lambda is none yet, and stops the compilation with a sentence that says so.
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

/// The mod's arguments in their order: four axes each, every one of which may be 1. The last axis of a table
/// has its entries.
std::vector<ArgumentDeclaration> declarations(const ModNode& mod);

/// "softcap(50)", "alibi", "relative(32,128,causal)", or the name of your own.
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

// Sixteen scores at a time, in arrays of fixed size: what GCC vectorises at -O2, where it makes no versions
// of a loop.
template <class T, class F, std::size_t... I>
FOVEA_MOD_INLINE void apply(const F& f, const ModTile<T>& t, std::index_sequence<I...>) {
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t j = 0; j < t.count; j += mod_lanes) {
      T x[mod_lanes], y[mod_lanes], a[sizeof...(I) + 1][mod_lanes];
      std::memcpy(x, t.scores + r * t.stride + j, sizeof x);
      (std::memcpy(a[I], t.arguments[I].values + r * t.arguments[I].row_stride + j, sizeof a[I]), ...);
      const auto query = static_cast<std::int32_t>(t.first.query + r),
                 key = static_cast<std::int32_t>(t.first.key + j);
      const auto last = static_cast<std::int32_t>(t.count - j - 1);  // lanes behind it stand at the last site
      for (std::int32_t l = 0; l < mod_lanes; ++l)
        y[l] = f(x[l], Site{t.first.batch, t.first.head, query, key + std::min(l, last)}, a[I][l]...);
      std::memcpy(t.result + r * t.stride + j, y, sizeof y);
    }
  }
}

// One pass by the score, one by each argument that is wanted.
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
      const auto last = static_cast<std::int32_t>(t.count - j - 1);  // lanes behind it stand at the last site
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

/// A mod from a lambda (score, Site, argument...) -> score, generic in its numbers; `arguments` names its
/// arguments, in their order. See the head of this file. A lambda that does not fit stops the compilation
/// with a sentence that says why (mod_checks.h).
template <std::size_t N, class F>
Mod make_mod(std::string name, const char* const (&arguments)[N], F&& f) {
  using Kept = std::decay_t<F>;
  if constexpr (mod_detail::explain<mod_detail::fault_of<F, Kept, N>()>()) {
    return Mod(std::make_shared<mod_detail::LambdaMod<Kept, N>>(std::move(name), std::to_array(arguments),
                                                                std::forward<F>(f)));
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
/// Names that are no list stop the compilation too.
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
/// The slopes of the paper for a number of heads: 2^(-8/n), 2^(-16/n), ... for a power of two, and those of
/// the next powers of two interleaved for others.
std::vector<double> alibi_slopes(std::int64_t num_heads);
/// score + bias. Argument "bias", [batch or 1, heads or 1, query_len or 1, key_len or 1].
struct DenseBias {};
/// score + table[bucket(query - key)] (T5, Raffel et al. 2020, arXiv 1910.10683): near distances have a
/// bucket each, far ones share one logarithmically. Argument "table", [1, heads or 1, 1, buckets].
/// Bidirectional halves the buckets between the two directions; causal gives keys ahead of the query the
/// bucket of distance 0.
struct RelativeBias {
  enum class Direction : std::uint8_t { bidirectional, causal };
  std::int64_t buckets = 32, max_distance = 128;
  Direction direction = Direction::bidirectional;
};
std::int64_t relative_bucket(const RelativeBias& bias, std::int64_t distance);

/// score + Σ_{l = j+1..p} log f_l: what lies far back is forgotten, by gates that the data set (FoX, Lin et
/// al. 2025, arXiv 2503.02130). Arguments "query" [.., query_len, 1] and "key" [.., 1, key_len], both the
/// running sums of log f, from mechanisms/forget.h. Only behind a causal mask.
struct ForgetGate {};

/// score / value; towards 0 softmax becomes the argmax. value > 0.
struct Temperature {
  double value = 1.0;
};
/// score / temperature, learned. Argument "temperature", usually [1, heads, 1, 1].
struct LearnedTemperature {};

/// score + table[query row][distance], distances cut to [-max_distance, max_distance], entry max_distance +
/// query - key: a score that depends on the query and on how far the key is (Shaw et al. 2018, arXiv
/// 1803.02155; with the table (q + w)·r of mechanisms/relative_key.h Transformer-XL's, Dai et al. 2019, arXiv
/// 1901.02860). Argument "table", [batch or 1, heads or 1, query_len or 1, 2·max_distance + 1].
struct RelativeKeyBias {
  std::int64_t max_distance = 128;
};

/// Keeps keys within `reach` of a centre that the query chose, hides the others (Luong et al. 2015, arXiv
/// 1508.04025, section 3.2, local-p). Argument "center", [batch, heads or 1, query_len, 1], a position in key
/// coordinates, from mechanisms/local.h. The last of the mods, for it makes scores of -inf. reach >= 0.
struct LocalWindow {
  double reach = 10.0;
};
/// A weight mod: weight · exp(-(key - center)² / 2·deviation²) (same section, eq. 10; the paper's deviation
/// is reach / 2). Argument "center", as above, and its gradient goes to what predicted it. deviation > 0.
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
