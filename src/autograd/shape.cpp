#include <algorithm>
#include <array>
#include <string>

#include "autograd/record.h"
#include "autograd/rows.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/kept_vector.h"
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
  std::array<std::int64_t, max_rank> sizes{};
  std::copy(shape.sizes().begin(), shape.sizes().end(), sizes.begin());
  sizes[static_cast<std::size_t>(axis)] = size;
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(shape.rank())));
}

int checked_axis(const char* function, const Shape& shape, int axis) {
  const int positive = axis < 0 ? shape.rank() + axis : axis;
  if (positive < 0 || positive >= shape.rank()) {
    throw InvalidArgument(function, "axis", "an axis of " + to_string(shape), std::to_string(axis));
  }
  return positive;
}

// `rows` rows of `width` elements, from one stride to another.
struct RowCopy {
  const float* from;
  std::int64_t from_stride;
  float* to;
  std::int64_t to_stride, rows, width;
};

// One sweep over all copies: the parts of a concatenation are often too small to be shared out one by one.
void copy_rows(std::span<const RowCopy> copies) {
  std::int64_t all = 0;
  for (const RowCopy& copy : copies) all += copy.rows * copy.width;
  for_pieces(all, [&](std::int64_t first, std::int64_t last) {
    for (const RowCopy& copy : copies) {
      const std::int64_t count = copy.rows * copy.width;
      for_row_parts(std::max<std::int64_t>(first, 0), std::min(last, count), copy.width,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      std::copy(copy.from + row * copy.from_stride + begin,
                                copy.from + row * copy.from_stride + end,
                                copy.to + row * copy.to_stride + begin);
                    });
      first -= count;
      last -= count;
    }
  });
}

}  // namespace

Var reshape(const Var& x, Shape shape) {
  if (shape.count() != x.value().count())
    throw InvalidArgument("reshape", "shape", "a shape of " + std::to_string(x.value().count()) + " elements",
                          to_string(shape));
  return result_of(tape_of({&x}), x.value().reshape(shape),
                   [=](const Tensor& d) { accumulate(x, d); });  // `d` itself: this node was its last reader
}

Var concat(std::span<const Var> parts, int axis) {
  static constexpr ProfileLabel label{"concat", ProfilePart::elementwise};
  const ProfileSpan span(label);
  if (parts.empty()) throw InvalidArgument("concat", "parts", "at least one", "none");
  for (const Var& part : parts) expect_elements("concat", "parts", part.value());
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
  ProfileSpan::add(moved({}, 2 * out.count()));
  const Split whole = split_at(out.shape(), axis);
  KeptVector<RowCopy> copies;
  copies.reserve(parts.size());
  float* to = out.data<float>();
  for (const Var& part : parts) {
    const std::int64_t width = part.size(axis) * whole.inner;
    copies.push_back({part.value().data<float>(), width, to, whole.length * whole.inner, whole.outer, width});
    to += width;
  }
  copy_rows(copies);
  if (!tape) return out;
  KeptVector<Var> kept(parts.begin(), parts.end());
  return {out, tape->record([=](const Tensor& d) {
            KeptVector<Tensor> gradients;
            KeptVector<RowCopy> back;
            gradients.reserve(kept.size());
            back.reserve(kept.size());
            const float* from = d.data<float>();
            for (const Var& part : kept) {
              const std::int64_t width = part.size(axis) * whole.inner;
              gradients.push_back(part.recorded() ? Tensor(DType::f32, part.shape()) : Tensor());
              if (part.recorded())
                back.push_back({from, whole.length * whole.inner, gradients.back().data<float>(), width,
                                whole.outer, width});
              from += width;
            }
            copy_rows(back);
            for (std::size_t i = 0; i < kept.size(); ++i) accumulate(kept[i], std::move(gradients[i]));
          })};
}

Var slice(const Var& x, int axis, std::int64_t begin, std::int64_t length) {
  static constexpr ProfileLabel label{"slice", ProfilePart::elementwise};
  const ProfileSpan span(label);
  expect_elements("slice", "x", x.value());
  axis = checked_axis("slice", x.shape(), axis);
  const Split s = split_at(x.shape(), axis);
  if (begin < 0 || length < 0 || begin + length > s.length) {
    throw InvalidArgument("slice", "begin, length",
                          "a range inside axis " + std::to_string(axis) + " of " + to_string(x.shape()),
                          "[" + std::to_string(begin) + ", " + std::to_string(begin + length) + ")");
  }
  Tensor out(DType::f32, with_size(x.shape(), axis, length));
  ProfileSpan::add(moved({}, 2 * out.count()));
  const std::int64_t stride = s.length * s.inner, width = length * s.inner;
  const RowCopy copy{
      x.value().data<float>() + begin * s.inner, stride, out.data<float>(), width, s.outer, width};
  copy_rows({&copy, 1});
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    float* to = gradient_of(x).data<float>() + begin * s.inner;
    for_pieces_of_rows(s.outer, width, [&](std::int64_t row, std::int64_t first, std::int64_t last) {
      add_row(d.data<float>() + row * width + first, last - first, to + row * stride + first);
    });
  });
}

namespace {

// to[index[i]] += rows[i] for the `count` rows of each of `batch` entries, whose indices lead to rows of that
// entry alone. A unit has some columns of some entries, so that a row adds up in the order of the index.
void add_gathered(const float* rows, std::span<const std::int64_t> index, std::int64_t count,
                  std::int64_t dim, float* to) {
  constexpr std::int64_t columns = 256;
  const std::int64_t batch = std::ssize(index) / count,
                     entries = std::max<std::int64_t>(elements_of_piece / (count * columns), 1),
                     across = (dim + columns - 1) / columns;
  Executor& executor = std::ssize(index) * dim <= elements_of_piece ? serial_executor() : default_executor();
  executor.parallel_for((batch + entries - 1) / entries * across, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit % across * columns, width = std::min(columns, dim - begin),
                       first = unit / across * entries * count,
                       last = std::min(std::ssize(index), first + entries * count);
    for (std::int64_t i = first; i < last; ++i)
      add_row(rows + i * dim + begin, width, to + index[static_cast<std::size_t>(i)] * dim + begin);
  });
}

}  // namespace

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
  KeptVector<std::int64_t> rows(index.begin(), index.end());  // of x as [B * T, D]
  for (std::int64_t i = 0; i < gathered; ++i) {
    if (rows[i] < 0 || rows[i] >= length) {
      throw InvalidArgument("gather_rows", "index", "rows in [0, " + std::to_string(length) + ")",
                            std::to_string(rows[i]));
    }
    rows[i] += i / count * length;
  }
  Tensor out(DType::f32, {x.size(0), count, dim});
  ProfileSpan::add(moved({}, 2 * out.count()));
  for_pieces_of_rows(gathered, dim, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
    const float* row = x.value().data<float>() + rows[static_cast<std::size_t>(i)] * dim;
    std::copy(row + begin, row + end, out.data<float>() + i * dim + begin);
  });
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    add_gathered(d.data<float>(), rows, count, dim, gradient_of(x).data<float>());
  });
}

Var blend_rows(std::span<const float> mask, const Var& a, const Var& b) {
  static constexpr ProfileLabel label{"blend rows", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&a}, a.value().count()));
  expect_same_shape("blend_rows", a, b);
  if (a.shape().rank() < 1 || static_cast<std::int64_t>(mask.size()) != a.size(0)) {
    throw InvalidArgument("blend_rows", "mask", "one entry for each row of " + to_string(a.shape()),
                          std::to_string(mask.size()));
  }
  const std::int64_t rows = a.size(0), width = rows > 0 ? a.value().count() / rows : 0;
  const KeptVector<float> kept(mask.begin(), mask.end());
  const auto choose = [=](const float* first, const float* second, float* out) {
    for_pieces_of_rows(rows, width, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
      const float* from = kept[static_cast<std::size_t>(r)] != 0.0f ? first : second;
      if (from) {
        std::copy(from + r * width + begin, from + r * width + end, out + r * width + begin);
      } else {
        std::fill(out + r * width + begin, out + r * width + end, 0.0f);
      }
    });
  };
  Tensor out(DType::f32, a.shape());
  choose(a.value().data<float>(), b.value().data<float>(), out.data<float>());
  return result_of(tape_of({&a, &b}), out, [=](const Tensor& d) {
    if (a.recorded()) {
      Tensor da(DType::f32, a.shape());
      choose(d.data<float>(), nullptr, da.data<float>());
      accumulate(a, da);
    }
    if (b.recorded()) {
      Tensor db(DType::f32, b.shape());
      choose(nullptr, d.data<float>(), db.data<float>());
      accumulate(b, db);
    }
  });
}

}  // namespace fovea::autograd
