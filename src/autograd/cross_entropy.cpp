// The output layer and its loss as one op. Logits of a vocabulary are the largest tensor of a translation
// model (8,000 tokens × 10,000 words are 320 MB). So they are computed in chunks of rows, turned into their
// own gradient in place, and dropped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/gemm.h"
#include "autograd/record.h"
#include "autograd/reduction.h"
#include "autograd/rows.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

// 256 rows × 10,000 classes × 4 bytes = 10 MB: it fits the shared cache, and has enough rows for an efficient
// product.
constexpr std::int64_t chunk_rows = 256;

struct RowLoss {
  double loss = 0.0, log_likelihood = 0.0;
  bool correct = false;
};

// x ← e^(x - shift); returns the sum of the results, and of the x before.
FOVEA_CLONES void exponentials(float* x, std::int64_t n, float shift, float* sum, float* sum_before) {
  float total = 0.0f, before = 0.0f;
#pragma omp simd reduction(+ : total, before)
  for (std::int64_t i = 0; i < n; ++i) {
    before += x[i];
    x[i] = vector_exp(x[i] - shift);
    total += x[i];
  }
  *sum = total;
  *sum_before = before;
}

FOVEA_CLONES float exponential_sum(const float* x, std::int64_t n, float shift) {
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += vector_exp_nonpositive(x[i] - shift);
  return total;
}

FOVEA_CLONES void scale_and_shift(float* x, std::int64_t n, float factor, float offset) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * factor + offset;
}

// The loss of one row; the row of logits becomes its gradient, times the row's share of the whole.
RowLoss row_loss(float* logits, std::int64_t classes, std::int32_t target, float smoothing, float share) {
  const float best = maximum_of(logits, classes), target_logit = logits[target];
  float sum = 0.0f, logit_sum = 0.0f;
  exponentials(logits, classes, best, &sum, &logit_sum);
  const double log_sum = static_cast<double>(best) + std::log(static_cast<double>(sum));
  const double likelihood = target_logit - log_sum;
  const double uniform = static_cast<double>(logit_sum) / static_cast<double>(classes) - log_sum;
  scale_and_shift(logits, classes, share / sum, -share * smoothing / static_cast<float>(classes));
  logits[target] -= share * (1.0f - smoothing);
  return {-(1.0 - smoothing) * likelihood - smoothing * uniform, likelihood, target_logit == best};
}

struct Gradients {
  Tensor x, weight, bias;
};

void check(const Var& x, const Var& weight, const Var& bias, std::span<const std::int32_t> targets) {
  const char* function = "linear_cross_entropy";
  expect_elements(function, "x", x.value());
  expect_elements(function, "weight", weight.value());
  if (x.shape().rank() != 2) throw InvalidArgument(function, "x", "[N, D]", to_string(x.shape()));
  if (weight.shape().rank() != 2 || weight.size(1) != x.size(1)) {
    throw InvalidArgument(function, "weight", "[V, " + std::to_string(x.size(1)) + "]",
                          to_string(weight.shape()));
  }
  if (!bias.empty() && bias.value().count() != weight.size(0)) {
    throw InvalidArgument(function, "bias", "[" + std::to_string(weight.size(0)) + "]",
                          to_string(bias.shape()));
  }
  if (static_cast<std::int64_t>(targets.size()) != x.size(0)) {
    throw InvalidArgument(function, "targets", std::to_string(x.size(0)) + " targets",
                          std::to_string(targets.size()));
  }
  for (const std::int32_t target : targets) {
    if (target >= weight.size(0)) {
      throw InvalidArgument(function, "targets", "classes below " + std::to_string(weight.size(0)),
                            std::to_string(target));
    }
  }
}

constexpr std::int64_t row_group = 128;  // rows that a unit copies

// The rows with a target, in order. Padding has none: it is a third of a batch whose sentences are of 8 to 20
// tokens, and the products with the vocabulary are half of a translator's step.
KeptVector<std::int64_t> rows_with_target(std::span<const std::int32_t> targets) {
  KeptVector<std::int64_t> rows;
  rows.reserve(targets.size());
  for (std::size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] >= 0) rows.push_back(static_cast<std::int64_t>(r));
  }
  return rows;
}

// body(n) for every n below `count`, in parallel.
template <class Body>
void for_rows(std::int64_t count, Body&& body) {
  default_executor().parallel_for((count + row_group - 1) / row_group, [&](std::int64_t group, int) {
    for (std::int64_t n = group * row_group; n < std::min(count, (group + 1) * row_group); ++n) body(n);
  });
}

// Row n of the result is row index[n] of x.
Tensor gathered(const Tensor& x, std::span<const std::int64_t> index) {
  const std::int64_t dim = x.size(1);
  Tensor y(DType::f32, {std::ssize(index), dim});
  for_rows(y.size(0), [&](std::int64_t n) {
    std::copy_n(x.data<float>() + index[static_cast<std::size_t>(n)] * dim, dim, y.data<float>() + n * dim);
  });
  return y;
}

// The reverse: rows that are not in the index, which is in order, are zero.
Tensor scattered(const Tensor& y, std::span<const std::int64_t> index, std::int64_t rows) {
  const std::int64_t dim = y.size(1);
  Tensor x(DType::f32, {rows, dim});
  for_rows(rows, [&](std::int64_t r) {
    const auto at = std::lower_bound(index.begin(), index.end(), r);
    if (at != index.end() && *at == r)
      std::copy_n(y.data<float>() + (at - index.begin()) * dim, dim, x.data<float>() + r * dim);
    else
      std::fill_n(x.data<float>() + r * dim, dim, 0.0f);
  });
  return x;
}

}  // namespace

Var linear_cross_entropy(const Var& x, const Var& weight, const Var& bias,
                         std::span<const std::int32_t> targets, float smoothing, const Reduction& reduction,
                         CrossEntropyStats* stats) {
  static constexpr ProfileLabel label{"linear cross entropy", ProfilePart::losses};
  const ProfileSpan span(label);
  check(x, weight, bias, targets);
  if (!(smoothing >= 0.0f && smoothing < 1.0f))
    throw InvalidArgument("linear_cross_entropy", "smoothing", "a number in [0, 1)",
                          std::to_string(smoothing));
  const Share share("linear_cross_entropy", reduction, x.size(0));
  const KeptVector<std::int64_t> kept = rows_with_target(targets);
  const std::int64_t rows = std::ssize(kept), dim = x.size(1), classes = weight.size(0);
  const bool all = rows == x.size(0);
  const Tensor given = all ? x.value() : gathered(x.value(), kept);
  Tape* tape = tape_of({&x, &weight, &bias});
  const Operands operands = operands_of(tape);
  const auto gradients = make_kept<Gradients>();
  if (x.recorded()) gradients->x = Tensor(DType::f32, given.shape());
  // The first chunk writes it: filling the largest matrix of a model with zeros is a pass over memory.
  if (weight.recorded())
    gradients->weight =
        rows > 0 ? Tensor(DType::f32, weight.shape()) : Tensor::zeros(DType::f32, weight.shape());
  if (bias.recorded()) gradients->bias = Tensor::zeros(DType::f32, {classes});
  Tensor logits(DType::f32, {std::min(rows, chunk_rows), classes});
  KeptVector<RowLoss> losses(kept.size());
  const Matrix by_rows{weight.value().data<float>(), dim}, across{by_rows.data, dim, Transpose::yes};
  // Each chunk reads the whole weight twice. Copies gain nothing for a single chunk.
  SharedPanels of_logits, of_x;
  if (operands == Operands::f32 && rows > chunk_rows) {
    of_logits = SharedPanels(classes, dim, across);
    if (gradients->x) of_x = SharedPanels(dim, classes, by_rows);
  }
  for (std::int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const std::int64_t count = std::min(chunk_rows, rows - begin);
    const Matrix input{given.data<float>() + begin * dim, dim};
    float* chunk = logits.data<float>();
    gemm({.m = count,
          .n = classes,
          .k = dim,
          .a = input,
          .b = across,
          .panels = of_logits.panels(),
          .bias = bias.empty() ? nullptr : bias.value().data<float>(),
          .c = chunk,
          .leading = classes},
         {}, operands);
    default_executor().parallel_for(count, [&](std::int64_t r, int) {
      const std::int64_t row = kept[static_cast<std::size_t>(begin + r)];
      losses[static_cast<std::size_t>(begin + r)] = row_loss(
          chunk + r * classes, classes, targets[static_cast<std::size_t>(row)], smoothing, share(row));
    });
    ProductBlock dx, dw;
    if (gradients->x)
      dx = {.m = count,
            .n = dim,
            .k = classes,
            .a = {chunk, classes},
            .b = by_rows,
            .panels = of_x.panels(),
            .c = gradients->x.data<float>() + begin * dim,
            .leading = dim};
    if (gradients->weight)
      dw = {.m = classes,
            .n = dim,
            .k = count,
            .a = {chunk, classes, Transpose::yes},
            .b = input,
            .add = begin > 0,
            .c = gradients->weight.data<float>(),
            .leading = dim};
    gemm(dx, dw, operands);
    if (gradients->bias) add_columns(chunk, count, classes, gradients->bias.data<float>());
  }
  if (gradients->x && !all) gradients->x = scattered(gradients->x, kept, x.size(0));
  CrossEntropyStats total;
  double sum = 0.0;
  for (std::size_t n = 0; n < kept.size(); ++n) {
    total.loss += losses[n].loss;
    sum += share(kept[n]) * losses[n].loss;
    total.log_likelihood += losses[n].log_likelihood;
    total.correct += losses[n].correct;
    ++total.tokens;
  }
  if (stats) *stats = total;
  Tensor loss(DType::f32, {1});
  loss.data<float>()[0] = static_cast<float>(sum);
  if (!tape) return loss;
  return {loss, tape->record([=](const Tensor& gradient) {
            const float factor = gradient.data<float>()[0];
            for (Tensor* part : {&gradients->x, &gradients->weight, &gradients->bias}) {
              if (!*part || factor == 1.0f) continue;
              for_pieces(part->count(), [&](std::int64_t from, std::int64_t to) {
                scale_and_shift(part->data<float>() + from, to - from, factor, 0.0f);
              });
            }
            accumulate(x, std::move(gradients->x));
            accumulate(weight, std::move(gradients->weight));
            accumulate(bias, std::move(gradients->bias));
          })};
}

std::vector<std::int32_t> argmax_rows(const Tensor& rows) {
  if (rows.rank() != 2 || rows.size(1) < 1)
    throw InvalidArgument("argmax_rows", "rows", "[N, V] with V at least 1", to_string(rows.shape()));
  std::vector<std::int32_t> best(static_cast<std::size_t>(rows.size(0)));
  const std::int64_t classes = rows.size(1), group = std::max<std::int64_t>(elements_of_piece / classes, 1);
  default_executor().parallel_for((rows.size(0) + group - 1) / group, [&](std::int64_t unit, int) {
    for (std::int64_t n = unit * group; n < std::min(rows.size(0), (unit + 1) * group); ++n)
      best[static_cast<std::size_t>(n)] =
          static_cast<std::int32_t>(first_maximum(rows.data<float>() + n * classes, classes));
  });
  return best;
}

namespace {

// What log softmax adds to each logit of a row whose maximum is `best`. A long row has a sum for each piece,
// so that threads may share it.
float log_softmax_offset(const float* row, std::int64_t classes, float best) {
  KeptVector<float> sums(static_cast<std::size_t>(classes / elements_of_piece + 1));
  for_pieces(classes, [&](std::int64_t begin, std::int64_t end) {
    sums[begin / elements_of_piece] = exponential_sum(row + begin, end - begin, best);
  });
  return -(best + std::log(std::accumulate(sums.begin(), sums.end(), 0.0f)));
}

// Most pieces of a vocabulary hold nothing better than what was found before, and their maximum tells so.
constexpr std::int64_t piece_classes = 128;

// The largest number of each piece, NaNs passed over. Returns a sum that is NaN if a number is. 32 numbers
// side by side are four vectors by AVX2: one vector would wait for itself.
FOVEA_CLONES float maxima_of_pieces(const float* x, std::int64_t n, float* maxima) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t lanes = piece_classes / 4;
  const auto larger = [](float number, float than) { return number > than ? number : than; };
  const std::int64_t whole = n / piece_classes;
  float total = 0.0f;
  for (std::int64_t piece = 0; piece < whole; ++piece) {
    const float* from = x + piece * piece_classes;
    float best = -infinity, sum = 0.0f;
#pragma omp simd reduction(max : best) reduction(+ : sum)
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float a = from[i], b = from[i + lanes], c = from[i + 2 * lanes], d = from[i + 3 * lanes];
      sum += (a + b) + (c + d);
      float largest = larger(a, -infinity);
      largest = larger(b, largest);
      largest = larger(c, largest);
      largest = larger(d, largest);
      best = larger(largest, best);
    }
    maxima[piece] = best;
    total += sum;
  }
  if (whole * piece_classes == n) return total;
  maxima[whole] = -infinity;
  for (std::int64_t i = whole * piece_classes; i < n; ++i) {
    total += x[i];
    maxima[whole] = larger(x[i], maxima[whole]);
  }
  return total;
}

// Adds the classes [begin, end) to the best `count` so far, which are in order. The numbers are logits.
void take_best(const float* row, std::int64_t begin, std::int64_t end, std::size_t count,
               std::span<const std::int32_t> without, std::vector<Probable>& best) {
  const auto before = [](const Probable& a, const Probable& b) {
    return a.log_probability != b.log_probability ? a.log_probability > b.log_probability : a.id < b.id;
  };
  float least = best.size() == count ? best.back().log_probability : -std::numeric_limits<float>::infinity();
  for (std::int64_t i = begin; i < end; ++i) {
    const Probable now{static_cast<std::int32_t>(i), row[i]};
    if (now.log_probability < least) continue;
    if ((best.size() == count && !before(now, best.back())) ||
        std::find(without.begin(), without.end(), now.id) != without.end())
      continue;
    best.insert(std::upper_bound(best.begin(), best.end(), now, before), now);
    if (best.size() > count) best.pop_back();
    if (best.size() == count) least = best.back().log_probability;
  }
}

}  // namespace

void log_softmax_rows(Tensor& logits) {
  static constexpr ProfileLabel label{"log-softmax", ProfilePart::search};
  const ProfileSpan span(label, {.bytes = 8.0 * static_cast<double>(logits.count())});
  if (logits.rank() != 2)
    throw InvalidArgument("log_softmax_rows", "logits", "[N, V]", to_string(logits.shape()));
  const std::int64_t classes = logits.size(1);
  // A single row, as that of a text which is written, is shared out by its pieces.
  default_executor().parallel_for(logits.size(0), [&](std::int64_t r, int) {
    float* row = logits.data<float>() + r * classes;
    const float offset = log_softmax_offset(row, classes, maximum_of(row, classes));
    for_pieces(classes, [&](std::int64_t begin, std::int64_t end) {
      scale_and_shift(row + begin, end - begin, 1.0f, offset);
    });
  });
}

std::vector<std::vector<Probable>> most_probable(const Tensor& logits, std::size_t count,
                                                 std::span<const std::int32_t> without,
                                                 LogProbabilities numbers) {
  static constexpr ProfileLabel label{"most probable", ProfilePart::search};
  const ProfileSpan span(label, {.bytes = 4.0 * static_cast<double>(logits.count())});
  if (logits.rank() != 2)
    throw InvalidArgument("most_probable", "logits", "[N, V]", to_string(logits.shape()));
  const std::int64_t classes = logits.size(1);
  std::vector<std::vector<Probable>> all(static_cast<std::size_t>(logits.size(0)));
  default_executor().parallel_for(logits.size(0), [&](std::int64_t r, int) {
    const float* row = logits.data<float>() + r * classes;
    std::vector<float> maxima(static_cast<std::size_t>((classes + piece_classes - 1) / piece_classes));
    const float sum = maxima_of_pieces(row, classes, maxima.data());
    const float largest = maximum_of(maxima.data(), static_cast<std::int64_t>(maxima.size()));
    if (std::isnan(sum) || std::isinf(largest)) return;  // every probability would be NaN
    const bool given = numbers == LogProbabilities::given;
    const float offset = given ? log_softmax_offset(row, classes, largest) : 0.0f;
    std::vector<Probable>& best = all[static_cast<std::size_t>(r)];
    best.reserve(count + 1);
    // The `count` pieces of the largest maxima first: the others then have something to add only where it is
    // equal to the last, or where classes are left out.
    std::vector<std::size_t> order(maxima.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (count < order.size())
      std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                       [&](std::size_t a, std::size_t b) { return maxima[a] > maxima[b]; });
    for (const std::size_t piece : order) {
      if (best.size() == count && maxima[piece] < best.back().log_probability) continue;
      const std::int64_t begin = static_cast<std::int64_t>(piece) * piece_classes;
      take_best(row, begin, std::min(begin + piece_classes, classes), count, without, best);
    }
    for (Probable& one : best) one.log_probability += offset;
  });
  return all;
}

}  // namespace fovea::autograd
