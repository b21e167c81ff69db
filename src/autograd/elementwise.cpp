#include "autograd/record.h"
#include "autograd/vector_math.h"
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
FOVEA_CLONES void cap_in_place(float factor, float cap, std::int64_t n, float* x) {
  const float by = factor / cap;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] = cap * vector_tanh(x[i] * by);
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
Var unary(const char* name, const Var& x, Unary function, UnaryGradient derivative) {
  expect_elements(name, "x", x.value());
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
  const Var sum = result_of(tape_of({&a, &b}), out, [=](const Tensor& d) {
    accumulate_copy(b, d);
    accumulate(a, d);  // `d` itself: this node was its last reader
  });
  ProfileSpan::add(moved({&a, &b}, out.count()));  // of forward alone, so it stands behind the recording
  return sum;
}

Var multiply(const Var& a, const Var& b) {
  static constexpr ProfileLabel label{"multiply", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&a, &b}, a.value().count()));
  expect_same_shape("multiply", a, b);
  return result_of(tape_of({&a, &b}), product(a.value(), b.value()), [=](const Tensor& d) {
    if (a.recorded()) accumulate(a, product(d, b.value()));
    if (b.recorded()) accumulate(b, product(d, a.value()));
  });
}

Var scale(const Var& x, float factor) {
  static constexpr ProfileLabel label{"scale", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("scale", "x", x.value());
  return result_of(tape_of({&x}), scaled(x.value(), factor),
                   [=](const Tensor& d) { accumulate(x, scaled(d, factor)); });
}

void scale_and_cap(Tensor& x, float factor, std::optional<float> cap) {
  expect_elements("scale_and_cap", "x", x);
  if (x.dtype() != DType::f32)
    throw InvalidArgument("scale_and_cap", "x", "f32", std::string(to_string(x.dtype())));
  if (cap && !(*cap > 0.0f))
    throw InvalidArgument("scale_and_cap", "cap", "a number above 0", std::to_string(*cap));
  static constexpr ProfileLabel label{"scaled logits", ProfilePart::elementwise};
  const ProfileSpan span(label, {.bytes = 8.0 * static_cast<double>(x.count())});
  for_pieces(x.count(), [&](std::int64_t begin, std::int64_t end) {
    float* piece = x.data<float>() + begin;
    if (cap)
      cap_in_place(factor, *cap, end - begin, piece);
    else
      scale_into(piece, factor, end - begin, piece);
  });
}

Var tanh(const Var& x) {
  static constexpr ProfileLabel label{"tanh", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  return unary("tanh", x, tanh_into, tanh_gradient);
}
Var sigmoid(const Var& x) {
  static constexpr ProfileLabel label{"sigmoid", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  return unary("sigmoid", x, sigmoid_into, sigmoid_gradient);
}

}  // namespace fovea::autograd
