// The element-wise operations that gates of recurrences are made of.
#include <algorithm>
#include <cmath>
#include <string>

#include "autograd/record.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

// Both functions are of gates: one number for each token and head. So they are the library's, which are exact
// at large arguments, and not fast approximations.
float softplus_of(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
}

float sigmoid_of(float x) {
  const float e = std::exp(-std::abs(x));
  return x < 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
}

template <class Function>
Tensor mapped(const Tensor& x, Function&& function) {
  Tensor y(DType::f32, x.shape());
  for_pieces(y.count(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y.data<float>()[i] = function(i);
  });
  return y;
}

}  // namespace

Var softplus(const Var& x) {
  static constexpr ProfileLabel label{"softplus", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("softplus", "x", x.value());
  const float* in = x.value().data<float>();
  return result_of(tape_of({&x}), mapped(x.value(), [&](std::int64_t i) { return softplus_of(in[i]); }),
                   [x](const Tensor& dy) {
                     accumulate(x, mapped(dy, [&](std::int64_t i) {
                                  return dy.data<float>()[i] * sigmoid_of(x.value().data<float>()[i]);
                                }));
                   });
}

Var exp(const Var& x) {
  static constexpr ProfileLabel label{"exp", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("exp", "x", x.value());
  const float* in = x.value().data<float>();
  const Tensor y = mapped(x.value(), [&](std::int64_t i) { return std::exp(in[i]); });
  return result_of(tape_of({&x}), y, [x, y](const Tensor& dy) {
    accumulate(x, mapped(dy, [&](std::int64_t i) { return dy.data<float>()[i] * y.data<float>()[i]; }));
  });
}

Var clamp(const Var& x, float least, float most) {
  static constexpr ProfileLabel label{"clamp", ProfilePart::elementwise};
  if (!(least <= most))
    throw InvalidArgument("clamp", "least", "at most " + std::to_string(most), std::to_string(least));
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("clamp", "x", x.value());
  const float* in = x.value().data<float>();
  return result_of(tape_of({&x}),
                   mapped(x.value(), [&](std::int64_t i) { return std::clamp(in[i], least, most); }),
                   [x, least, most](const Tensor& dy) {
                     accumulate(x, mapped(dy, [&](std::int64_t i) {
                                  const float value = x.value().data<float>()[i];
                                  return value < least || value > most ? 0.0f : dy.data<float>()[i];
                                }));
                   });
}

namespace {

struct Groups {
  std::int64_t rows = 0, count = 0, size = 0;  // of x; `count` groups of `size` elements a row
  bool shared = false;                         // one list of factors for all rows
};

Groups groups_of(const Var& x, const Var& factors) {
  const auto refuse = [&] {
    throw InvalidArgument("multiply_groups", "factors",
                          "[..., G] or [G], where G divides the last size of x " + to_string(x.shape()),
                          to_string(factors.shape()));
  };
  const int rank = factors.shape().rank();
  if (rank < 1 || x.shape().rank() < 1) refuse();
  Groups groups{.count = factors.size(-1)};
  const std::int64_t width = x.size(-1);
  if (groups.count < 1 || width % groups.count != 0) refuse();
  groups.size = width / groups.count;
  groups.rows = width == 0 ? 0 : x.value().count() / width;
  groups.shared = rank == 1 && x.shape().rank() > 1;
  if (!groups.shared) {
    if (rank != x.shape().rank()) refuse();
    for (int axis = 0; axis + 1 < rank; ++axis) {
      if (factors.size(axis) != x.size(axis)) refuse();
    }
  }
  return groups;
}

const float* factors_of(const Groups& groups, const Tensor& factors, std::int64_t row) {
  return factors.data<float>() + (groups.shared ? 0 : row * groups.count);
}

// out ← x times the factors of its groups.
void multiply_rows(const Groups& groups, const Tensor& x, const Tensor& factors, Tensor& out) {
  const std::int64_t width = groups.count * groups.size;
  default_executor().parallel_for(groups.rows, [&](std::int64_t row, int) {
    const float* f = factors_of(groups, factors, row);
    const float* from = x.data<float>() + row * width;
    float* to = out.data<float>() + row * width;
    for (std::int64_t g = 0; g < groups.count; ++g) {
      for (std::int64_t i = g * groups.size; i < (g + 1) * groups.size; ++i) to[i] = from[i] * f[g];
    }
  });
}

// The sums over groups of x ∘ dy; of shared factors also over rows, one after the other.
Tensor factor_gradient(const Groups& groups, const Tensor& x, const Tensor& dy, const Shape& shape) {
  Tensor sums = Tensor::zeros(DType::f32, shape);
  for (std::int64_t row = 0; row < groups.rows; ++row) {
    float* to = sums.data<float>() + (groups.shared ? 0 : row * groups.count);
    const std::int64_t begin = row * groups.count * groups.size;
    for (std::int64_t g = 0; g < groups.count; ++g) {
      float sum = 0.0f;
      for (std::int64_t i = 0; i < groups.size; ++i)
        sum += x.data<float>()[begin + g * groups.size + i] * dy.data<float>()[begin + g * groups.size + i];
      to[g] += sum;
    }
  }
  return sums;
}

}  // namespace

Var multiply_groups(const Var& x, const Var& factors) {
  static constexpr ProfileLabel label{"multiply groups", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x, &factors}, x.value().count()));
  expect_elements("multiply_groups", "x", x.value());
  expect_elements("multiply_groups", "factors", factors.value());
  const Groups groups = groups_of(x, factors);
  Tensor y(DType::f32, x.shape());
  multiply_rows(groups, x.value(), factors.value(), y);
  return result_of(tape_of({&x, &factors}), y, [=](const Tensor& dy) {
    if (x.recorded()) {
      Tensor dx(DType::f32, x.shape());
      multiply_rows(groups, dy, factors.value(), dx);
      accumulate(x, dx);
    }
    if (factors.recorded()) accumulate(factors, factor_gradient(groups, x.value(), dy, factors.shape()));
  });
}

}  // namespace fovea::autograd
