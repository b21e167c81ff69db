// The element-wise operations that gates of recurrences are made of.
#include <algorithm>
#include <string>

#include "autograd/record.h"
#include "autograd/rows.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void softplus_into(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float size = x[i] < 0.0f ? -x[i] : x[i];
    y[i] = (x[i] > 0.0f ? x[i] : 0.0f) + vector_log1p_of_share(vector_exp_of_all(-size));
  }
}
FOVEA_CLONES void softplus_gradient(const float* x, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float size = x[i] < 0.0f ? -x[i] : x[i], e = vector_exp_of_all(-size);
    dx[i] = dy[i] * ((x[i] < 0.0f ? e : 1.0f) / (1.0f + e));
  }
}
FOVEA_CLONES void exp_into(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = vector_exp_of_all(x[i]);
}
FOVEA_CLONES void exp_gradient(const float* y, const float* dy, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * y[i];
}
FOVEA_CLONES void clamp_into(const float* x, float least, float most, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float above = x[i] < least ? least : x[i];
    y[i] = above > most ? most : above;
  }
}
FOVEA_CLONES void clamp_gradient(const float* x, const float* dy, float least, float most, std::int64_t n,
                                 float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float above = x[i] < least ? 0.0f : dy[i];
    dx[i] = x[i] > most ? 0.0f : above;
  }
}

// function(begin, n, y) for the pieces of a result of this shape.
template <class Function>
Tensor mapped(const Shape& shape, Function&& function) {
  Tensor y(DType::f32, shape);
  for_pieces(y.count(), [&](std::int64_t begin, std::int64_t end) {
    function(begin, end - begin, y.data<float>() + begin);
  });
  return y;
}

}  // namespace

Var softplus(const Var& x) {
  static constexpr ProfileLabel label{"softplus", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("softplus", "x", x.value());
  const Tensor y = mapped(x.shape(), [&](std::int64_t begin, std::int64_t n, float* to) {
    softplus_into(x.value().data<float>() + begin, n, to);
  });
  return result_of(tape_of({&x}), y, [x](const Tensor& dy) {
    accumulate(x, mapped(x.shape(), [&](std::int64_t begin, std::int64_t n, float* to) {
                 softplus_gradient(x.value().data<float>() + begin, dy.data<float>() + begin, n, to);
               }));
  });
}

Var exp(const Var& x) {
  static constexpr ProfileLabel label{"exp", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("exp", "x", x.value());
  const Tensor y = mapped(x.shape(), [&](std::int64_t begin, std::int64_t n, float* to) {
    exp_into(x.value().data<float>() + begin, n, to);
  });
  return result_of(tape_of({&x}), y, [x, y](const Tensor& dy) {
    accumulate(x, mapped(y.shape(), [&](std::int64_t begin, std::int64_t n, float* to) {
                 exp_gradient(y.data<float>() + begin, dy.data<float>() + begin, n, to);
               }));
  });
}

Var clamp(const Var& x, float least, float most) {
  static constexpr ProfileLabel label{"clamp", ProfilePart::elementwise};
  if (!(least <= most))
    throw InvalidArgument("clamp", "least", "at most " + std::to_string(most), std::to_string(least));
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("clamp", "x", x.value());
  const Tensor y = mapped(x.shape(), [&](std::int64_t begin, std::int64_t n, float* to) {
    clamp_into(x.value().data<float>() + begin, least, most, n, to);
  });
  return result_of(tape_of({&x}), y, [x, least, most](const Tensor& dy) {
    accumulate(x, mapped(x.shape(), [&](std::int64_t begin, std::int64_t n, float* to) {
                 clamp_gradient(x.value().data<float>() + begin, dy.data<float>() + begin, least, most, n,
                                to);
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

// One row: groups of one element are products side by side.
FOVEA_CLONES void multiply_row(const float* x, const float* factors, std::int64_t count, std::int64_t size,
                               float* y) {
  if (size == 1) {
#pragma omp simd
    for (std::int64_t g = 0; g < count; ++g) y[g] = x[g] * factors[g];
    return;
  }
  for (std::int64_t g = 0; g < count; ++g, x += size, y += size) {
    const float factor = factors[g];
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) y[i] = x[i] * factor;
  }
}

// sums[g] += the sum of x ∘ dy over group g of one row.
FOVEA_CLONES void add_row_sums(const float* x, const float* dy, std::int64_t count, std::int64_t size,
                               float* sums) {
  if (size == 1) {
#pragma omp simd
    for (std::int64_t g = 0; g < count; ++g) sums[g] += x[g] * dy[g];
    return;
  }
  for (std::int64_t g = 0; g < count; ++g, x += size, dy += size) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < size; ++i) sum += x[i] * dy[i];
    sums[g] += sum;
  }
}

// out ← x times the factors of its groups.
void multiply_rows(const Groups& groups, const Tensor& x, const Tensor& factors, Tensor& out) {
  const std::int64_t width = groups.count * groups.size;
  for_pieces(
      groups.rows,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          multiply_row(x.data<float>() + row * width, factors_of(groups, factors, row), groups.count,
                       groups.size, out.data<float>() + row * width);
      },
      width);
}

// The sums over groups of x ∘ dy; of shared factors also over rows. Rows of a unit have sums of their own,
// which are added in order: a single pass over all of them took as long as the rest of an element-wise layer.
Tensor factor_gradient(const Groups& groups, const Tensor& x, const Tensor& dy, const Shape& shape) {
  constexpr std::int64_t unit_rows = 128;
  const std::int64_t width = groups.count * groups.size, units = (groups.rows + unit_rows - 1) / unit_rows;
  Tensor sums = Tensor::zeros(DType::f32, shape);
  const Tensor partial =
      groups.shared && units > 1 ? Tensor::zeros(DType::f32, {units, groups.count}) : Tensor();
  Executor& executor = groups.rows * width <= elements_of_piece ? serial_executor() : default_executor();
  executor.parallel_for(units, [&](std::int64_t unit, int) {
    for (std::int64_t row = unit * unit_rows; row < std::min(groups.rows, (unit + 1) * unit_rows); ++row) {
      float* to = (partial ? partial : sums).data<float>() + (!groups.shared ? row
                                                              : partial      ? unit
                                                                             : 0) *
                                                                 groups.count;
      add_row_sums(x.data<float>() + row * width, dy.data<float>() + row * width, groups.count, groups.size,
                   to);
    }
  });
  for (std::int64_t unit = 0; partial && unit < units; ++unit)
    add_row(partial.data<float>() + unit * groups.count, groups.count, sums.data<float>());
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
