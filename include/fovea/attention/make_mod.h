// make_mod: a mod of your own is a lambda over a score, the site, and its learnable arguments:
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
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "fovea/attention/elementwise.h"
#include "fovea/attention/mod_checks.h"
#include "fovea/attention/mod_node.h"
#include "fovea/attention/site.h"

namespace fovea {

/// The buffers of a ModTile have room for a number of scores rounded up to a multiple of this.
inline constexpr int mod_lanes = 16;

/// The scores of `rows` queries and `count` keys. The rows of every buffer are `stride` apart, those of
/// an argument `row_stride`. Elements behind `count` hold anything.
template <class T>
struct ModTile {
  std::int64_t rows = 0, count = 0, stride = 0;
  Site first;                 ///< the site of the first row and first key
  const T* scores = nullptr;  ///< before the mod
  T* result = nullptr;        ///< after it; may be `scores`
  struct Argument {
    const T* values = nullptr;
    std::int64_t row_stride = 0;  ///< 0 where all rows share one; of a table by distance it may be -1
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

namespace mod_detail {

void check_names(const std::string& mod, const std::vector<ArgumentDeclaration>& arguments);

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
  LambdaMod(std::string name, std::vector<ArgumentDeclaration> arguments, F f)
      : name_(std::move(name)), arguments_(std::move(arguments)), f_(std::move(f)) {
    check_names(name_, arguments_);
  }
  ModCode<float> code_f32(ModIsa isa) const override { return code<float, F, N>(isa); }
  ModCode<double> code_f64(ModIsa isa) const override { return code<double, F, N>(isa); }
  const void* self() const override { return &f_; }
  std::string print() const override { return name_; }
  const std::vector<ArgumentDeclaration>& arguments() const override { return arguments_; }
  bool text_is_all() const override { return std::is_empty_v<F>; }

 private:
  std::string name_;
  std::vector<ArgumentDeclaration> arguments_;
  F f_;
};

}  // namespace mod_detail

/// Makes a mod from a lambda (score, Site, argument...) -> score, generic in its numbers. `arguments` are the
/// declarations of the lambda's arguments in their order (mod_argument): which axes each may have, and with
/// which values a layer begins to learn it. Throws InvalidArgument for a name that is empty, and for one that
/// two arguments have. A lambda that does not fit stops the compilation with a sentence
/// that says why (mod_checks.h).
template <std::size_t N, class F>
Mod make_mod(std::string name, const ArgumentDeclaration (&arguments)[N], F&& f) {
  using Kept = std::decay_t<F>;
  if constexpr (mod_detail::explain<mod_detail::fault_of<F, Kept, N>()>()) {
    return Mod(std::make_shared<mod_detail::LambdaMod<Kept, N>>(
        std::move(name), std::vector<ArgumentDeclaration>(std::begin(arguments), std::end(arguments)),
        std::forward<F>(f)));
  } else {
    return Mod(nullptr);
  }
}
/// Their names are enough where every axis may be longer than 1 and a layer is told its values.
template <std::size_t N, class F>
Mod make_mod(std::string name, const char* const (&arguments)[N], F&& f) {
  using Kept = std::decay_t<F>;
  if constexpr (mod_detail::explain<mod_detail::fault_of<F, Kept, N>()>()) {
    std::vector<ArgumentDeclaration> declarations;
    for (const char* argument : arguments) declarations.push_back(mod_argument(argument));
    return Mod(std::make_shared<mod_detail::LambdaMod<Kept, N>>(std::move(name), std::move(declarations),
                                                                std::forward<F>(f)));
  } else {
    return Mod(nullptr);
  }
}
template <class F>
Mod make_mod(std::string name, F&& f) {
  using Kept = std::decay_t<F>;
  if constexpr (mod_detail::explain<mod_detail::fault_of<F, Kept, 0>()>()) {
    return Mod(std::make_shared<mod_detail::LambdaMod<Kept, 0>>(
        std::move(name), std::vector<ArgumentDeclaration>(), std::forward<F>(f)));
  } else {
    return Mod(nullptr);
  }
}
/// What `{}` means in the place of arguments: none.
struct NoModArguments {};
template <class F>
Mod make_mod(std::string name, NoModArguments, F&& f) {
  return make_mod(std::move(name), std::forward<F>(f));
}
/// Argument names that are not a list in braces stop the compilation too.
template <class Names, class F>
Mod make_mod(std::string, Names&&, F&&) {
  static_assert(mod_detail::never<Names>,
                "make_mod: the argument names are a list in braces: make_mod(\"decay\", {\"slope\"}, "
                "[](auto score, Site at, auto slope) { return score - slope * (at.query - at.key); })");
  return Mod(nullptr);
}

}  // namespace fovea
