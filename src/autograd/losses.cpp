// Losses over few classes, whose logits are small enough to be kept; a vocabulary's are not:
// cross_entropy.cpp.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/record.h"
#include "autograd/reduction.h"
#include "autograd/rows.h"
#include "core/clones.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void multiply_by(float* x, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}
FOVEA_CLONES void divide_by(float* x, std::int64_t n, float divisor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] /= divisor;
}

// Records a loss whose gradient by `x` is already computed.
Var with_gradient(const Var& x, double loss, const Tensor& gradient) {
  Tensor value(DType::f32, {1});
  *value.data<float>() = static_cast<float>(loss);
  const Var result = result_of(tape_of({&x}), value, [=](const Tensor& d) {
    const float factor = *d.data<float>();
    if (factor != 1.0f)
      for_pieces(gradient.count(), [&](std::int64_t begin, std::int64_t end) {
        multiply_by(gradient.data<float>() + begin, end - begin, factor);
      });
    accumulate(x, gradient);
  });
  ProfileSpan::add(moved({&x}, gradient.count()));  // of forward alone, so it stands behind the recording
  return result;
}

void check_rows(const char* function, const char* argument, const Var& x,
                std::span<const std::int32_t> targets) {
  expect_elements(function, argument, x.value());
  if (x.shape().rank() != 2) throw InvalidArgument(function, argument, "[N, V]", to_string(x.shape()));
  const auto rows = static_cast<std::size_t>(x.size(0));
  if (targets.size() != rows) {
    throw InvalidArgument(function, "targets", std::to_string(rows) + " targets",
                          std::to_string(targets.size()));
  }
  for (const std::int32_t target : targets) {
    if (target >= x.size(1)) {
      throw InvalidArgument(function, "targets", "classes below " + std::to_string(x.size(1)),
                            std::to_string(target));
    }
  }
}

// `row_loss(row, target, gradient)` returns -log p(target) and writes its gradient by the row. Rows run side
// by side; their losses are added in order.
template <class RowLoss>
Var sum_of_rows(const Var& x, std::span<const std::int32_t> targets, const Share& share,
                CrossEntropyStats* stats, RowLoss&& row_loss) {
  const std::int64_t classes = x.size(1), rows = x.size(0),
                     group =
                         std::max<std::int64_t>(elements_of_piece / std::max<std::int64_t>(classes, 1), 1);
  const Tensor gradient(DType::f32, x.shape());
  std::vector<double> nats(targets.size());
  std::vector<char> correct(targets.size());  // not bool: threads write to neighbours
  default_executor().parallel_for((rows + group - 1) / group, [&](std::int64_t unit, int) {
    for (std::int64_t r = unit * group; r < std::min(rows, (unit + 1) * group); ++r) {
      const auto n = static_cast<std::size_t>(r);
      const float* row = x.value().data<float>() + r * classes;
      float* d_row = gradient.data<float>() + r * classes;
      if (targets[n] < 0) {
        std::fill_n(d_row, classes, 0.0f);
        continue;
      }
      nats[n] = row_loss(row, targets[n], d_row);
      multiply_by(d_row, classes, share(r));
      correct[n] = first_maximum(row, classes) == targets[n];
    }
  });
  CrossEntropyStats total;
  double loss = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto n = static_cast<std::size_t>(r);
    if (targets[n] < 0) continue;
    loss += share(r) * nats[n];
    total.loss += nats[n];
    total.log_likelihood -= nats[n];
    total.correct += correct[n];
    ++total.tokens;
  }
  if (stats) *stats = total;
  return with_gradient(x, loss, gradient);
}

}  // namespace

Var cross_entropy(const Var& logits, std::span<const std::int32_t> targets, const Reduction& reduction,
                  CrossEntropyStats* stats) {
  static constexpr ProfileLabel label{"cross entropy", ProfilePart::losses};
  const ProfileSpan span(label);
  check_rows("cross_entropy", "logits", logits, targets);
  const std::int64_t classes = logits.size(1);
  const Share share("cross_entropy", reduction, logits.size(0));
  return sum_of_rows(logits, targets, share, stats,
                     [=](const float* row, std::int32_t target, float* gradient) {
                       const float best = row[first_maximum(row, classes)];
                       double total = 0.0;
                       for (std::int64_t i = 0; i < classes; ++i) {
                         gradient[i] = std::exp(row[i] - best);
                         total += gradient[i];
                       }
                       divide_by(gradient, classes, static_cast<float>(total));
                       gradient[target] -= 1.0f;
                       return static_cast<double>(best) + std::log(total) - row[target];
                     });
}

Var negative_log_likelihood(const Var& probabilities, std::span<const std::int32_t> targets,
                            const Reduction& reduction, CrossEntropyStats* stats) {
  static constexpr ProfileLabel label{"negative log likelihood", ProfilePart::losses};
  const ProfileSpan span(label);
  check_rows("negative_log_likelihood", "probabilities", probabilities, targets);
  const Share share("negative_log_likelihood", reduction, probabilities.size(0));
  return sum_of_rows(
      probabilities, targets, share, stats,
      [classes = probabilities.size(1)](const float* row, std::int32_t target, float* gradient) {
        const float p = std::max(row[target], 1e-30f);
        std::fill_n(gradient, classes, 0.0f);
        gradient[target] = -1.0f / p;
        return -std::log(static_cast<double>(p));
      });
}

Var squared_error(const Var& x, const Tensor& target, const Reduction& reduction) {
  static constexpr ProfileLabel label{"squared error", ProfilePart::losses};
  const ProfileSpan span(label);
  expect_elements("squared_error", "x", x.value());
  expect_elements("squared_error", "target", target);
  if (!(target.shape() == x.shape()))
    throw InvalidArgument("squared_error", "target", to_string(x.shape()), to_string(target.shape()));
  const Share share("squared_error", reduction, x.value().count());
  const Tensor gradient(DType::f32, x.shape());
  std::vector<double> sums(static_cast<std::size_t>(gradient.count() / elements_of_piece + 1));
  for_pieces(gradient.count(), [&](std::int64_t begin, std::int64_t end) {
    double sum = 0.0;
    for (std::int64_t i = begin; i < end; ++i) {
      const float error = x.value().data<float>()[i] - target.data<float>()[i];
      sum += static_cast<double>(share(i)) * error * error;
      gradient.data<float>()[i] = 2.0f * share(i) * error;
    }
    sums[static_cast<std::size_t>(begin / elements_of_piece)] = sum;
  });
  const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  return with_gradient(x, total, gradient);
}

}  // namespace fovea::autograd
