// Residual, dropout and norm in one sweep. Sums are rounded after the product with the scale of dropout, as
// in the separate operations: CMakeLists.txt compiles this file without contraction to fused multiply-adds.
#include "fovea/autograd/residual.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "autograd/bf16_products.h"
#include "autograd/dropout_bytes.h"
#include "autograd/norm_rows.h"
#include "autograd/record.h"
#include "core/clones.h"
#include "fovea/attention/dropout.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void add_rows(const float* a, const float* b, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

FOVEA_CLONES void add_kept(const float* x, const float* y, const std::uint8_t* bytes, std::uint32_t threshold,
                           float scale, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] + kept(y[i] * scale, bytes[i], threshold);
}

// Rows of which the sum is made before they are normalised. Their elements are a multiple of a block of
// Philox, and those of 256 floats fit into the first cache.
constexpr std::int64_t rows_at_once = 16;

// An input of which backward needs the gradient alone, so that its value need not be kept.
struct Input {
  explicit Input(const Var& var) : node(var.node()), shape(var.shape()) {}
  float* gradient() const { return node && node->gradient ? node->gradient.data<float>() : nullptr; }
  Node* node;
  Shape shape;
};

class Residual {
 public:
  Residual(const char* function, const Var& x, const Var& y, const DropoutOf& dropout)
      : dropout_(dropout), x_(x), y_(y) {
    expect_elements(function, "x", x.value());
    expect_elements(function, "y", y.value());
    if (!(x.shape() == y.shape()))
      throw InvalidArgument(function, "y", to_string(x.shape()), to_string(y.shape()));
    if (!(dropout.rate >= 0.0f && dropout.rate < 1.0f))
      throw InvalidArgument(function, "dropout.rate", "a rate in [0, 1)", std::to_string(dropout.rate));
    const DropoutDecision decision = DropoutDecision::for_rate(static_cast<double>(dropout.rate));
    threshold_ = decision.keep_threshold;
    scale_ = static_cast<float>(decision.scale);
  }

  /// out = a + dropout(b) from element `begin` on, a multiple of 16.
  void add(const float* a, const float* b, std::int64_t begin, std::int64_t end, float* out) const {
    if (dropout_.rate == 0.0f) return add_rows(a + begin, b + begin, end - begin, out + begin);
    for_bytes(begin, end, [&](const std::uint8_t* bytes, std::int64_t i, std::int64_t n) {
      add_kept(a + i, b + i, bytes, threshold_, scale_, n, out + i);
    });
  }
  /// out = dropout(b) in the same way.
  void drop(const float* b, std::int64_t begin, std::int64_t end, float* out) const {
    if (dropout_.rate == 0.0f) {
      if (out != b) std::copy(b + begin, b + end, out + begin);
      return;
    }
    for_bytes(begin, end, [&](const std::uint8_t* bytes, std::int64_t i, std::int64_t n) {
      keep_below(b + i, bytes, threshold_, scale_, n, out + i);
    });
  }
  const Input& x() const noexcept { return x_; }
  const Input& y() const noexcept { return y_; }

 private:
  template <class Body>
  void for_bytes(std::int64_t begin, std::int64_t end, Body&& body) const {
    alignas(64) std::array<std::uint8_t, dropout_bytes_at_once> bytes;
    for (std::int64_t i = begin; i < end; i += dropout_bytes_at_once) {
      dropout_bytes(i, dropout_.seed, dropout_.stream, bytes.data());
      body(bytes.data(), i, std::min(dropout_bytes_at_once, end - i));
    }
  }
  DropoutOf dropout_;
  std::uint32_t threshold_ = 0;
  float scale_ = 1.0f;
  Input x_, y_;
};

// Passes the gradient of the sum on to both inputs, piece by piece. It becomes the gradient of an input that
// has none yet, and so does `spare`, a tensor of the same size or empty, whose elements are read no longer.
class PassedOn {
 public:
  PassedOn(const Residual& residual, const Tensor& total, const Tensor& spare)
      : residual_(residual), total_(total.data<float>()) {
    const Input &x = residual.x(), &y = residual.y();
    if (x.node && x.node == y.node && !x.node->gradient)
      x.node->gradient = Tensor::zeros(DType::f32, x.shape);
    add_to_x_ = x.gradient();
    add_to_y_ = y.gradient();
    const bool x_takes_total = x.node && !add_to_x_;
    if (x_takes_total) x.node->gradient = total.reshape(x.shape);
    if (!y.node || add_to_y_) return;
    const Tensor first = !x_takes_total ? total : spare ? spare : Tensor(DType::f32, y.shape);
    y.node->gradient = first.reshape(y.shape);
    becomes_y_ = first.data<float>();
  }
  void operator()(std::int64_t begin, std::int64_t end) const {
    if (add_to_x_) add_rows(add_to_x_ + begin, total_ + begin, end - begin, add_to_x_ + begin);
    if (add_to_y_) residual_.add(add_to_y_, total_, begin, end, add_to_y_);
    if (becomes_y_) residual_.drop(total_, begin, end, becomes_y_);
  }

 private:
  const Residual& residual_;
  float *total_, *add_to_x_ = nullptr, *add_to_y_ = nullptr, *becomes_y_ = nullptr;
};

void pass_on(const Residual& residual, const Tensor& gradient) {
  const PassedOn passed_on(residual, gradient, {});
  for_pieces(gradient.count(), [&](std::int64_t begin, std::int64_t end) { passed_on(begin, end); });
}

// Where the normalised rows go, in the types that are read. Those that are read in bf16 alone are rounded
// from one row of f32 in the first cache.
class NormedInto {
 public:
  NormedInto(const Shape& shape, NormedRows read) {
    if (read != NormedRows::bf16) rows_ = Tensor(DType::f32, shape);
    if (read != NormedRows::f32) rounded_ = Tensor(DType::bf16, shape);
  }
  const Tensor& rows() const noexcept { return rows_; }
  const Tensor& rounded() const noexcept { return rounded_; }
  /// The memory for the row from element `first` on, until this thread asks for the next.
  float* row(std::int64_t first, std::int64_t dim) const {
    if (rows_) return rows_.data<float>() + first;
    thread_local std::vector<float> memory;
    if (std::ssize(memory) < dim) memory.resize(static_cast<std::size_t>(dim));
    return memory.data();
  }
  void round(const float* row, std::int64_t first, std::int64_t dim) const {
    if (rounded_) bf16_narrow_rows(row, dim, 1, dim, rounded_.data<bfloat16>() + first, dim);
  }

 private:
  Tensor rows_, rounded_;
};

// The rows of a group, some at once: body(begin, end).
template <class Body>
void for_rows(std::int64_t begin, std::int64_t end, Body&& body) {
  for (std::int64_t r = begin; r < end; r += rows_at_once) body(r, std::min(end, r + rows_at_once));
}

}  // namespace

Var residual(const Var& x, const Var& y, const DropoutOf& dropout) {
  static constexpr ProfileLabel label{"residual", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x, &y}, x.value().count()));
  const Residual seam("residual", x, y, dropout);
  Tensor sum(DType::f32, x.shape());
  for_pieces(sum.count(), [&](std::int64_t begin, std::int64_t end) {
    seam.add(x.value().data<float>(), y.value().data<float>(), begin, end, sum.data<float>());
  });
  return result_of(tape_of({&x, &y}), sum, [=](const Tensor& d) { pass_on(seam, d); });
}

ResidualNorm residual_norm(const Var& x, const Var& y, const RowNorm& by, const DropoutOf& dropout,
                           const ResidualReads& reads) {
  static constexpr ProfileLabel label{"residual norm", ProfilePart::norms};
  const ProfileSpan span(label, moved({&x, &y}, 2 * x.value().count()));
  const Residual seam("residual_norm", x, y, dropout);
  const NormRows norm("residual_norm", x.shape(), by);
  const std::int64_t dim = norm.dim();
  Tape* tape = tape_of({&x, &y, &by.gamma, &by.beta});
  const Tensor moments = tape ? Tensor(DType::f32, {norm.rows(), 2}) : Tensor();
  if (tape && reads.normed != NormedRows::f32)
    throw InvalidArgument("residual_norm", "reads.normed", "f32 where something is recorded", "bf16");
  const NormedInto into(x.shape(), reads.normed);
  const bool keeps_sum = tape || reads.sum == ResidualSum::read;
  const Tensor sum = keeps_sum || !into.rows() ? Tensor(DType::f32, x.shape()) : into.rows();
  norm.for_groups([&](std::int64_t, std::int64_t group_begin, std::int64_t group_end) {
    for_rows(group_begin, group_end, [&](std::int64_t begin, std::int64_t end) {
      seam.add(x.value().data<float>(), y.value().data<float>(), begin * dim, end * dim, sum.data<float>());
      for (std::int64_t r = begin; r < end; ++r) {
        float* row = into.row(r * dim, dim);
        norm.forward(sum.data<float>() + r * dim, row, moments ? moments.data<float>() + 2 * r : nullptr);
        into.round(row, r * dim, dim);
      }
    });
  });
  if (!tape) return {reads.sum == ResidualSum::read ? Var(sum) : Var(), into.rows(), into.rounded()};
  // Backward comes to the later node first, when both gradients are complete: all readers of the two results
  // are recorded behind both. It takes the gradient of the sum with it. Without a gradient of the normed rows
  // the node of the sum passes on its own.
  Node* of_sum = nullptr;
  if (reads.sum == ResidualSum::read) of_sum = tape->record([=](const Tensor& d) { pass_on(seam, d); });
  Node* of_normed = tape->record([=](const Tensor& gradient) {
    const Tensor from_sum = of_sum ? of_sum->gradient : Tensor();
    if (of_sum) of_sum->gradient = Tensor();
    const Tensor sums = norm.new_sums();
    const PassedOn passed_on(seam, gradient, from_sum);
    float* total = gradient.data<float>();
    norm.for_groups([&](std::int64_t group, std::int64_t group_begin, std::int64_t group_end) {
      for_rows(group_begin, group_end, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          norm.backward(sum.data<float>() + r * dim, moments.data<float>() + 2 * r, total + r * dim,
                        sums.data<float>() + group * 2 * dim, total + r * dim);
        const std::int64_t first = begin * dim, last = end * dim;
        if (from_sum) add_rows(from_sum.data<float>() + first, total + first, last - first, total + first);
        passed_on(first, last);
      });
    });
    norm.add_sums(sums);
  });
  return {of_sum ? Var(sum, of_sum) : Var(), Var(into.rows(), of_normed)};
}

}  // namespace fovea::autograd
