#include <vector>

#include "autograd/record.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

// A tensor seen as [outer, axis, inner].
struct Split {
  std::int64_t outer = 1, length = 1, inner = 1;
};
Split split_at(const Shape& shape, int axis) {
  Split s;
  for (int i = 0; i < axis; ++i) s.outer *= shape[i];
  s.length = shape[axis];
  for (int i = axis + 1; i < shape.rank(); ++i) s.inner *= shape[i];
  return s;
}

Shape with_size(const Shape& shape, int axis, std::int64_t size) {
  std::vector<std::int64_t> sizes(shape.sizes().begin(), shape.sizes().end());
  sizes[static_cast<std::size_t>(axis)] = size;
  return Shape(sizes);
}

int checked_axis(const char* function, const Shape& shape, int axis) {
  const int positive = axis < 0 ? shape.rank() + axis : axis;
  if (positive < 0 || positive >= shape.rank()) {
    throw InvalidArgument(function, "axis", "an axis of " + to_string(shape), std::to_string(axis));
  }
  return positive;
}

// Rows of `count` elements, from one stride to another.
void copy_rows(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t count) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, count, to + r * to_stride);
}

}  // namespace

Var reshape(const Var& x, Shape shape) {
  return result_of(tape_of({&x}), x.value().reshape(shape),
                   [=](const Tensor& d) { accumulate(x, d.clone()); });
}

Var concat(std::span<const Var> parts, int axis) {
  static constexpr ProfileLabel label{"concat", ProfilePart::other};
  const ProfileSpan span(label);
  if (parts.empty()) throw InvalidArgument("concat", "parts", "at least one", "none");
  axis = checked_axis("concat", parts[0].shape(), axis);
  std::int64_t length = 0;
  Tape* tape = nullptr;
  for (const Var& part : parts) {
    if (part.shape().rank() != parts[0].shape().rank() ||
        !(with_size(part.shape(), axis, 0) == with_size(parts[0].shape(), axis, 0))) {
      throw InvalidArgument("concat", "parts",
                            "shapes that are equal except along axis " + std::to_string(axis),
                            to_string(parts[0].shape()) + " and " + to_string(part.shape()));
    }
    length += part.size(axis);
    if (part.recorded()) tape = part.node()->tape;
  }
  Tensor out(DType::f32, with_size(parts[0].shape(), axis, length));
  const Split whole = split_at(out.shape(), axis);
  std::int64_t offset = 0;
  for (const Var& part : parts) {
    const std::int64_t width = part.size(axis) * whole.inner;
    copy_rows(part.value().data<float>(), width, out.data<float>() + offset, whole.length * whole.inner,
              whole.outer, width);
    offset += width;
  }
  if (!tape) return out;
  std::vector<Var> kept(parts.begin(), parts.end());
  return {out, tape->record([=](const Tensor& d) {
            std::int64_t begin = 0;
            for (const Var& part : kept) {
              const std::int64_t width = part.size(axis) * whole.inner;
              if (part.recorded()) {
                Tensor gradient(DType::f32, part.shape());
                copy_rows(d.data<float>() + begin, whole.length * whole.inner, gradient.data<float>(), width,
                          whole.outer, width);
                accumulate(part, gradient);
              }
              begin += width;
            }
          })};
}

Var slice(const Var& x, int axis, std::int64_t begin, std::int64_t length) {
  static constexpr ProfileLabel label{"slice", ProfilePart::other};
  const ProfileSpan span(label);
  axis = checked_axis("slice", x.shape(), axis);
  const Split s = split_at(x.shape(), axis);
  if (begin < 0 || length < 0 || begin + length > s.length) {
    throw InvalidArgument("slice", "begin, length",
                          "a range inside axis " + std::to_string(axis) + " of " + to_string(x.shape()),
                          "[" + std::to_string(begin) + ", " + std::to_string(begin + length) + ")");
  }
  Tensor out(DType::f32, with_size(x.shape(), axis, length));
  copy_rows(x.value().data<float>() + begin * s.inner, s.length * s.inner, out.data<float>(),
            length * s.inner, s.outer, length * s.inner);
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    float* to = gradient_of(x).data<float>() + begin * s.inner;
    const std::int64_t width = length * s.inner;
    for (std::int64_t r = 0; r < s.outer; ++r) {
      const float* from = d.data<float>() + r * width;
      for (std::int64_t i = 0; i < width; ++i) to[r * s.length * s.inner + i] += from[i];
    }
  });
}

Var gather_rows(const Var& x, std::span<const std::int64_t> index) {
  if (x.shape().rank() != 3) throw InvalidArgument("gather_rows", "x", "[B, T, D]", to_string(x.shape()));
  return reshape(gather_rows(x, index, 1), {x.size(0), x.size(2)});
}

Var gather_rows(const Var& x, std::span<const std::int64_t> index, std::int64_t count) {
  static constexpr ProfileLabel label{"gather rows", ProfilePart::embeddings};
  const ProfileSpan span(label);
  const std::int64_t gathered = static_cast<std::int64_t>(index.size());
  // A division, because a product of the caller's numbers could overflow.
  if (x.shape().rank() != 3 || count < 1 || gathered % count != 0 || gathered / count != x.size(0)) {
    throw InvalidArgument("gather_rows", "x, index",
                          "x [B, T, D], and count indices (at least 1) for each of the B entries",
                          to_string(x.shape()) + " and " + std::to_string(gathered) + " indices, count " +
                              std::to_string(count));
  }
  const std::int64_t length = x.size(1), dim = x.size(2);
  std::vector<std::int64_t> rows(index.begin(), index.end());  // of x as [B * T, D]
  for (std::int64_t i = 0; i < gathered; ++i) {
    if (rows[i] < 0 || rows[i] >= length) {
      throw InvalidArgument("gather_rows", "index", "rows in [0, " + std::to_string(length) + ")",
                            std::to_string(rows[i]));
    }
    rows[i] += i / count * length;
  }
  Tensor out(DType::f32, {x.size(0), count, dim});
  for (std::int64_t i = 0; i < gathered; ++i)
    std::copy_n(x.value().data<float>() + rows[i] * dim, dim, out.data<float>() + i * dim);
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    float* to = gradient_of(x).data<float>();
    for (std::int64_t i = 0; i < gathered; ++i) {
      for (std::int64_t j = 0; j < dim; ++j) to[rows[i] * dim + j] += d.data<float>()[i * dim + j];
    }
  });
}

Var blend_rows(std::span<const float> mask, const Var& a, const Var& b) {
  static constexpr ProfileLabel label{"blend rows", ProfilePart::other};
  const ProfileSpan span(label);
  expect_same_shape("blend_rows", a, b);
  if (a.shape().rank() < 1 || static_cast<std::int64_t>(mask.size()) != a.size(0)) {
    throw InvalidArgument("blend_rows", "mask", "one entry for each row of " + to_string(a.shape()),
                          std::to_string(mask.size()));
  }
  const std::int64_t rows = a.size(0), width = rows > 0 ? a.value().count() / rows : 0;
  const std::vector<float> kept(mask.begin(), mask.end());
  const auto choose = [=](const float* first, const float* second, float* out) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = kept[r] != 0.0f ? first : second;
      if (from) {
        std::copy_n(from + r * width, width, out + r * width);
      } else {
        std::fill_n(out + r * width, width, 0.0f);
      }
    }
  };
  Tensor out(DType::f32, a.shape());
  choose(a.value().data<float>(), b.value().data<float>(), out.data<float>());
  return result_of(tape_of({&a, &b}), out, [=](const Tensor& d) {
    Tensor da(DType::f32, a.shape()), db(DType::f32, a.shape());
    choose(d.data<float>(), nullptr, da.data<float>());
    choose(nullptr, d.data<float>(), db.data<float>());
    accumulate(a, da);
    accumulate(b, db);
  });
}

}  // namespace fovea::autograd
