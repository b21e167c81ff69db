#include <array>
#include <cstring>

#include "autograd/record.h"
#include "autograd/vector_math.h"
#include "fovea/attention/dropout.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void add_into(const float* a, const float* b, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
FOVEA_CLONES void multiply_into(const float* a, const float* b, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}
FOVEA_CLONES void scale_into(const float* a, float factor, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] * factor;
}
FOVEA_CLONES void tanh_into(const float* a, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = vector_tanh(a[i]);
}
FOVEA_CLONES void sigmoid_into(const float* a, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = vector_sigmoid(a[i]);
}
FOVEA_CLONES void tanh_gradient(const float* y, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}
FOVEA_CLONES void sigmoid_gradient(const float* y, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * y[i] * (1.0f - y[i]);
}
using Unary = void (*)(const float*, std::int64_t, float*);
using UnaryGradient = void (*)(const float*, const float*, std::int64_t, float*);

// Both functions have derivatives that follow from their value, so backward needs the output only.
Var unary(const Var& x, Unary function, UnaryGradient derivative) {
  Tensor y(DType::f32, x.shape());
  for_pieces(y.count(), [&](std::int64_t begin, std::int64_t end) {
    function(x.value().data<float>() + begin, end - begin, y.data<float>() + begin);
  });
  return result_of(tape_of({&x}), y, [=](const Tensor& dy) {
    Tensor dx(DType::f32, x.shape());
    for_pieces(dx.count(), [&](std::int64_t begin, std::int64_t end) {
      derivative(y.data<float>() + begin, dy.data<float>() + begin, end - begin, dx.data<float>() + begin);
    });
    accumulate(x, dx);
  });
}

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor out(DType::f32, a.shape());
  for_pieces(out.count(), [&](std::int64_t begin, std::int64_t end) {
    multiply_into(a.data<float>() + begin, b.data<float>() + begin, end - begin, out.data<float>() + begin);
  });
  return out;
}

Tensor scaled(const Tensor& x, float factor) {
  Tensor out(DType::f32, x.shape());
  for_pieces(out.count(), [&](std::int64_t begin, std::int64_t end) {
    scale_into(x.data<float>() + begin, factor, end - begin, out.data<float>() + begin);
  });
  return out;
}

// Blocks of Philox computed side by side, one in each lane. philox4x32 computes one at a time and takes five
// times as long.
constexpr std::int64_t lanes = 16;

// words ← philox4x32({block, stream}, key) for `lanes` blocks from `first` on.
FOVEA_CLONES void philox_lanes(std::uint64_t first, std::uint64_t stream, std::uint64_t key,
                               std::uint32_t* words) {
  std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  for (std::uint64_t lane = 0; lane < lanes; ++lane) {
    c0[lane] = static_cast<std::uint32_t>(first + lane);
    c1[lane] = static_cast<std::uint32_t>((first + lane) >> 32);
    c2[lane] = static_cast<std::uint32_t>(stream);
    c3[lane] = static_cast<std::uint32_t>(stream >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0[lane];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2[lane];
      c0[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[lane] ^ key0;
      c1[lane] = static_cast<std::uint32_t>(product1);
      c2[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[lane] ^ key1;
      c3[lane] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    words[4 * lane] = c0[lane];
    words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane];
    words[4 * lane + 3] = c3[lane];
  }
}

FOVEA_CLONES void keep_below(const float* x, const std::uint8_t* bytes, std::uint32_t threshold, float scale,
                             std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = bytes[i] < threshold ? x[i] * scale : 0.0f;
}

// y = x·scale where byte i of the stream is below the threshold, else 0. Forward and backward generate the
// same bytes, so no mask is stored.
Tensor dropped(const Tensor& x, const DropoutDecision& decision, std::uint64_t seed, std::uint64_t stream) {
  Tensor y(DType::f32, x.shape());
  const auto scale = static_cast<float>(decision.scale);
  for_pieces(x.count(), [&](std::int64_t begin, std::int64_t end) {  // pieces are multiples of 16 · lanes
    alignas(64) std::array<std::uint32_t, 4 * lanes> words;
    alignas(64) std::array<std::uint8_t, 16 * lanes> bytes;
    for (std::int64_t i = begin; i < end; i += 16 * lanes) {
      philox_lanes(static_cast<std::uint64_t>(i / 16), stream, seed, words.data());
      std::memcpy(bytes.data(), words.data(), bytes.size());
      keep_below(x.data<float>() + i, bytes.data(), decision.keep_threshold, scale,
                 std::min<std::int64_t>(16 * lanes, end - i), y.data<float>() + i);
    }
  });
  return y;
}

}  // namespace

Var add(const Var& a, const Var& b) {
  static constexpr ProfileLabel label{"add", ProfilePart::elementwise};
  const ProfileSpan span(label);
  expect_same_shape("add", a, b);
  Tensor out(DType::f32, a.shape());
  for_pieces(out.count(), [&](std::int64_t begin, std::int64_t end) {
    add_into(a.value().data<float>() + begin, b.value().data<float>() + begin, end - begin,
             out.data<float>() + begin);
  });
  return result_of(tape_of({&a, &b}), out, [=](const Tensor& d) {
    accumulate_copy(b, d);
    accumulate(a, d);  // `d` itself: this node was its last reader
  });
}

Var multiply(const Var& a, const Var& b) {
  static constexpr ProfileLabel label{"multiply", ProfilePart::elementwise};
  const ProfileSpan span(label);
  expect_same_shape("multiply", a, b);
  return result_of(tape_of({&a, &b}), product(a.value(), b.value()), [=](const Tensor& d) {
    if (a.recorded()) accumulate(a, product(d, b.value()));
    if (b.recorded()) accumulate(b, product(d, a.value()));
  });
}

Var scale(const Var& x, float factor) {
  static constexpr ProfileLabel label{"scale", ProfilePart::elementwise};
  const ProfileSpan span(label);
  return result_of(tape_of({&x}), scaled(x.value(), factor),
                   [=](const Tensor& d) { accumulate(x, scaled(d, factor)); });
}

Var tanh(const Var& x) {
  static constexpr ProfileLabel label{"tanh", ProfilePart::elementwise};
  const ProfileSpan span(label);
  return unary(x, tanh_into, tanh_gradient);
}
Var sigmoid(const Var& x) {
  static constexpr ProfileLabel label{"sigmoid", ProfilePart::elementwise};
  const ProfileSpan span(label);
  return unary(x, sigmoid_into, sigmoid_gradient);
}

Var dropout(const Var& x, float rate, std::uint64_t seed, std::uint64_t stream) {
  static constexpr ProfileLabel label{"dropout", ProfilePart::elementwise};
  const ProfileSpan span(label);
  if (!(rate >= 0.0f && rate < 1.0f))
    throw InvalidArgument("dropout", "rate", "a rate in [0, 1)", std::to_string(rate));
  const DropoutDecision decision = DropoutDecision::for_rate(rate);
  return result_of(tape_of({&x}), dropped(x.value(), decision, seed, stream),
                   [=](const Tensor& d) { accumulate(x, dropped(d, decision, seed, stream)); });
}

}  // namespace fovea::autograd
