// Activations of feed-forward parts. Backward computes the function's inner part again from the input, which
// costs less than keeping and reading a second tensor of the widest layer.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "autograd/activation_rows.h"
#include "autograd/record.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

struct ValueAndSlope {
  float value, slope;
};

// Φ(x), the normal distribution function, by formula 7.1.26 of Abramowitz and Stegun for erfc: absolute error
// below 8e-8. The tail is computed directly, not as 1 - Φ(-x), to avoid cancellation.
[[gnu::always_inline]] inline ValueAndSlope gelu(float x) {
  const float z = (x < 0.0f ? -x : x) * 0.70710678f;
  const float density = vector_exp(-z * z);  // e^(-x²/2)
  const float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float tail = 0.5f * p * t * density;
  const float below = x < 0.0f ? tail : 1.0f - tail;
  return {x * below, below + x * density * 0.39894228f};
}

[[gnu::always_inline]] inline ValueAndSlope gelu_tanh(float x) {
  constexpr float root = 0.79788456f, cubic = 0.044715f;  // sqrt(2/π)
  const float t = vector_tanh(root * (x + cubic * x * x * x));
  const float half = 0.5f * (1.0f + t);
  return {x * half, half + 0.5f * x * (1.0f - t * t) * root * (1.0f + 3.0f * cubic * x * x)};
}

// c₀ + c₁·x + …
[[gnu::always_inline]] inline float polynomial(float, float c) {
  return c;
}
template <class... C>
[[gnu::always_inline]] inline float polynomial(float x, float c, C... rest) {
  return c + x * polynomial(x, rest...);
}

// x·P(x) for a distribution function P with P(-x) = 1 - P(x) is max(x, 0) - a·P(-a) with a = |x|, and log2
// P(-a) is nearly a parabola. So P(-a) takes one polynomial, of the coefficients c, and a power of 2, which
// is never above 1/2, and no division. Beyond `end`, a·P(-a) counts as its value there: 1.1e-7 for gelu and
// 2.3e-7 for gelu_tanh, at minus infinity too.
template <class... C>
[[gnu::always_inline]] inline float times_distribution(float x, float end, C... c) {
  // The limit by whole numbers: GCC 12 makes two paths of a condition here. NaN comes back with x below.
  const std::uint32_t size = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
  const float a = std::bit_cast<float>(std::min(size, std::bit_cast<std::uint32_t>(end)));
  const float power = polynomial(a, c...);
  constexpr float magic = 12582912.0f;  // 1.5·2^23, as in vector_exp
  const float shifted = power + magic;
  const float rest = power - (shifted - magic);
  const float p = polynomial(rest, 0.999999261f, 0.693121810f, 0.240247449f, 0.0559179027f, 0.00957011608f);
  // The exponent of p grows by the integer in the last bits of `shifted`, whose others are shifted out.
  const float below =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
  return (x < 0.0f ? 0.0f : x) - a * below;
}

// Polynomials with the least largest error of log2 P(-a), and so relative error of P(-a): 2.5e-5 for gelu's
// on [0, 5.5] and 8.5e-5 for gelu_tanh's on [0, 5]. One degree less has 2.5e-4 and 4.2e-4.
[[gnu::always_inline]] inline float short_gelu(float x) {
  return times_distribution(x, 5.5f, -1.00003606f, -1.15058403f, -0.460329447f, -0.0519704175f,
                            0.00748831121f, -0.000660981083f, 2.61537249e-05f);
}
[[gnu::always_inline]] inline float short_gelu_tanh(float x) {
  return times_distribution(x, 5.0f, -0.999877937f, -1.15465111f, -0.44241223f, -0.0812490272f, 0.0324369515f,
                            -0.0100883803f, 0.0012321536f, -5.61735998e-05f);
}

// x·σ(factor·x): SiLU at 1.
[[gnu::always_inline]] inline ValueAndSlope sigmoid_gated(float x, float factor) {
  const float s = vector_sigmoid(factor * x);
  return {x * s, s + factor * x * s * (1.0f - s)};
}

[[gnu::always_inline]] inline ValueAndSlope tanh_of(float x) {
  const float t = vector_tanh(x);
  return {t, 1.0f - t * t};
}

// y = f(x), and dx = dy·f'(x). dx may be dy.
struct Function {
  void (*value)(const float* x, std::int64_t n, float* y);
  void (*gradient)(const float* x, const float* dy, std::int64_t n, float* dx);
};

FOVEA_CLONES void relu_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
FOVEA_CLONES void relu_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = x[i] > 0.0f ? dy[i] : 0.0f;
}
FOVEA_CLONES void relu_squared_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > 0.0f ? x[i] * x[i] : 0.0f;
}
FOVEA_CLONES void relu_squared_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = x[i] > 0.0f ? 2.0f * x[i] * dy[i] : 0.0f;
}
FOVEA_CLONES void gelu_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gelu(x[i]).value;
}
FOVEA_CLONES void gelu_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu(x[i]).slope;
}
FOVEA_CLONES void gelu_tanh_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gelu_tanh(x[i]).value;
}
FOVEA_CLONES void gelu_tanh_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu_tanh(x[i]).slope;
}
FOVEA_CLONES void short_gelu_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = short_gelu(x[i]);
}
FOVEA_CLONES void short_gelu_tanh_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = short_gelu_tanh(x[i]);
}
FOVEA_CLONES void silu_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = sigmoid_gated(x[i], 1.0f).value;
}
FOVEA_CLONES void silu_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * sigmoid_gated(x[i], 1.0f).slope;
}
FOVEA_CLONES void quick_gelu_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = sigmoid_gated(x[i], 1.702f).value;
}
FOVEA_CLONES void quick_gelu_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * sigmoid_gated(x[i], 1.702f).slope;
}
FOVEA_CLONES void tanh_value(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = tanh_of(x[i]).value;
}
FOVEA_CLONES void tanh_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * tanh_of(x[i]).slope;
}
FOVEA_CLONES void multiply(const float* factor, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] *= factor[i];
}

Function function_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return {relu_value, relu_gradient};
    case Activation::gelu:
      return {gelu_value, gelu_gradient};
    case Activation::gelu_tanh:
      return {gelu_tanh_value, gelu_tanh_gradient};
    case Activation::silu:
      return {silu_value, silu_gradient};
    case Activation::quick_gelu:
      return {quick_gelu_value, quick_gelu_gradient};
    case Activation::tanh:
      return {tanh_value, tanh_gradient};
    case Activation::relu_squared:
      return {relu_squared_value, relu_squared_gradient};
  }
  throw InvalidArgument("activate", "activation", "one of Activation",
                        std::to_string(static_cast<int>(activation)));
}

}  // namespace

ActivationFunction value_of(Activation activation) {
  return function_of(activation).value;
}

ActivationFunction short_value_of(Activation activation) {
  if (activation == Activation::gelu) return short_gelu_value;
  if (activation == Activation::gelu_tanh) return short_gelu_tanh_value;
  return value_of(activation);
}

void multiply_by(const float* factor, std::int64_t n, float* y) {
  multiply(factor, n, y);
}

Var activate(Activation activation, const Var& x) {
  static constexpr ProfileLabel label{"activate", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("activate", "x", x.value());
  const Function f = function_of(activation);
  Tensor y(DType::f32, x.shape());
  for_pieces(y.count(), [&](std::int64_t begin, std::int64_t end) {
    f.value(x.value().data<float>() + begin, end - begin, y.data<float>() + begin);
  });
  return result_of(tape_of({&x}), y, [=](const Tensor& dy) {
    Tensor dx(DType::f32, x.shape());
    for_pieces(dx.count(), [&](std::int64_t begin, std::int64_t end) {
      f.gradient(x.value().data<float>() + begin, dy.data<float>() + begin, end - begin,
                 dx.data<float>() + begin);
    });
    accumulate(x, dx);
  });
}

Var gated(Activation activation, const Var& gate, const Var& x) {
  static constexpr ProfileLabel label{"gated", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&gate, &x}, x.value().count()));
  expect_elements("gated", "gate", gate.value());
  expect_elements("gated", "x", x.value());
  if (!(gate.shape() == x.shape()))
    throw InvalidArgument("gated", "x", to_string(gate.shape()), to_string(x.shape()));
  const Function f = function_of(activation);
  Tensor y(DType::f32, x.shape());
  for_pieces(y.count(), [&](std::int64_t begin, std::int64_t end) {
    f.value(gate.value().data<float>() + begin, end - begin, y.data<float>() + begin);
    multiply_by(x.value().data<float>() + begin, end - begin, y.data<float>() + begin);
  });
  return result_of(tape_of({&gate, &x}), y, [=](const Tensor& dy) {
    const Tensor d_gate = gate.recorded() ? Tensor(DType::f32, gate.shape()) : Tensor(),
                 dx = x.recorded() ? Tensor(DType::f32, x.shape()) : Tensor();
    for_pieces(dy.count(), [&](std::int64_t begin, std::int64_t end) {
      const float *of_gate = gate.value().data<float>() + begin, *d = dy.data<float>() + begin;
      if (d_gate) {
        float* to = d_gate.data<float>() + begin;
        std::copy(d, d + (end - begin), to);
        multiply_by(x.value().data<float>() + begin, end - begin, to);
        f.gradient(of_gate, to, end - begin, to);
      }
      if (dx) {
        f.value(of_gate, end - begin, dx.data<float>() + begin);
        multiply_by(d, end - begin, dx.data<float>() + begin);
      }
    });
    accumulate(gate, d_gate);
    accumulate(x, dx);
  });
}

}  // namespace fovea::autograd
