// Recurrences without a recurrence: all tokens of a head as one dense linear system in double. With D_ij the
// decays from behind token j up to token i, what the tokens write solves
//
//   delta      u_i = y_i - S_0^T D_i0 r_i - Σ_{j<i} (r_i·D_ij k_j) u_j
//   low rank   p_i = S_0^T D_(i-1)0 a_i + Σ_{j<i} (a_i·D_(i-1)j b_j) p_j + (a_i·D_(i-1)j k_j) v_j
//
// and an output reads S_0 and the writes of tokens up to its own, each through its decays.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

using Vector = std::vector<double>;

// One head of one sequence.
struct Head {
  const RecurrenceCase& c;
  const RecurrenceData& data;

  std::int64_t len() const { return c.shape.len; }
  std::int64_t dim() const { return c.shape.key_dim; }
  Vector row(const PlacedTensor& tensor, std::int64_t t, std::int64_t columns) const {
    Vector result;
    for (std::int64_t d = 0; d < columns; ++d) result.push_back(element(tensor.storage, t * columns + d));
    return result;
  }
  Vector key_row(const PlacedTensor& tensor, std::int64_t t) const { return row(tensor, t, dim()); }
  /// D of channel d from behind token `from` (-1: the beginning) up to token `to`.
  double decay(std::int64_t from, std::int64_t to, std::int64_t d) const {
    double sum = 0;
    for (std::int64_t t = from + 1; t <= to; ++t)
      sum += element(data.inputs.log_decay.storage, t * dim() + d);
    return std::exp(sum);
  }
  /// ⟨x, D y⟩ with the decays from behind token `from` up to token `to`.
  double product(const Vector& x, const Vector& y, std::int64_t from, std::int64_t to) const {
    double sum = 0;
    for (std::int64_t d = 0; d < dim(); ++d)
      sum += x[static_cast<std::size_t>(d)] * y[static_cast<std::size_t>(d)] * decay(from, to, d);
    return sum;
  }
  /// Column `column` of S_0^T D x, with the decays up to token `to`.
  double initial(const Vector& x, std::int64_t to, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t d = 0; d < dim(); ++d)
      sum += x[static_cast<std::size_t>(d)] * decay(-1, to, d) *
             element(data.inputs.initial_state.storage, d * c.shape.value_dim + column);
    return sum;
  }
};

// x with A x = b, by elimination with the largest pivot of each column.
Vector solved(std::vector<Vector> a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t i = column; i < n; ++i) {
      if (std::abs(a[i][column]) > std::abs(a[pivot][column])) pivot = i;
    }
    std::swap(a[pivot], a[column]);
    std::swap(b[pivot], b[column]);
    for (std::size_t i = 0; i < n; ++i) {
      if (i == column) continue;
      const double factor = a[i][column] / a[column][column];
      for (std::size_t j = 0; j < n; ++j) a[i][j] -= factor * a[column][j];
      b[i] -= factor * b[column];
    }
  }
  for (std::size_t i = 0; i < n; ++i) b[i] /= a[i][i];
  return b;
}

// Column `column` of all outputs.
Vector delta_outputs(const Head& h, std::int64_t column) {
  const auto& in = h.data.inputs;
  const auto len = static_cast<std::size_t>(h.len());
  std::vector<Vector> system(len, Vector(len));
  Vector right(len), outputs;
  for (std::int64_t i = 0; i < h.len(); ++i) {
    const double beta = element(in.beta.storage, i);
    Vector erase = h.key_row(in.key, i);
    for (double& x : erase) x *= beta;
    const auto row = static_cast<std::size_t>(i);
    right[row] = beta * h.row(in.value, i, h.c.shape.value_dim)[static_cast<std::size_t>(column)] -
                 h.initial(erase, i, column);
    system[row][row] = 1;
    for (std::int64_t j = 0; j < i; ++j)
      system[row][static_cast<std::size_t>(j)] = h.product(erase, h.key_row(in.key, j), j, i);
  }
  const Vector written = solved(system, right);
  for (std::int64_t i = 0; i < h.len(); ++i) {
    const Vector q = h.key_row(in.query, i);
    double sum = h.initial(q, i, column);
    for (std::int64_t j = 0; j <= i; ++j)
      sum += h.product(q, h.key_row(in.key, j), j, i) * written[static_cast<std::size_t>(j)];
    outputs.push_back(sum);
  }
  return outputs;
}

Vector low_rank_outputs(const Head& h, std::int64_t column) {
  const auto& in = h.data.inputs;
  const auto len = static_cast<std::size_t>(h.len());
  std::vector<Vector> system(len, Vector(len));
  Vector right(len), outputs;
  const auto value = [&](std::int64_t t) {
    return h.row(in.value, t, h.c.shape.value_dim)[static_cast<std::size_t>(column)];
  };
  for (std::int64_t i = 0; i < h.len(); ++i) {
    const Vector a = h.key_row(in.a, i);
    const auto row = static_cast<std::size_t>(i);
    right[row] = h.initial(a, i - 1, column);
    system[row][row] = 1;
    for (std::int64_t j = 0; j < i; ++j) {
      system[row][static_cast<std::size_t>(j)] = -h.product(a, h.key_row(in.b, j), j, i - 1);
      right[row] += h.product(a, h.key_row(in.key, j), j, i - 1) * value(j);
    }
  }
  const Vector products = solved(system, right);
  for (std::int64_t i = 0; i < h.len(); ++i) {
    const Vector q = h.key_row(in.query, i);
    double sum = h.initial(q, i, column);
    for (std::int64_t j = 0; j <= i; ++j)
      sum += h.product(q, h.key_row(in.b, j), j, i) * products[static_cast<std::size_t>(j)] +
             h.product(q, h.key_row(in.key, j), j, i) * value(j);
    outputs.push_back(sum);
  }
  return outputs;
}

class RecurrenceDense : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, RecurrenceDense, ::testing::ValuesIn(runnable_recurrence_kernels()),
                         kernel_name);

TEST_P(RecurrenceDense, DeltaAndLowRankWritesSolveOneLinearSystem) {
  if (!runs(GetParam(), DType::f64)) GTEST_SKIP() << "it takes no f64";
  for (const Write& write : {Write(DeltaWrite{}), Write(DiagonalPlusLowRankWrite{})}) {
    RecurrenceCase c{.spec = {.decay = KeyDecay{}, .write = write, .scale = 1.0}};
    c.shape = {.len = 41, .key_dim = 6, .value_dim = 3};
    c.dtype = DType::f64;
    c.strongest_gate = -0.4;
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    RecurrenceRun run;
    run_forward(plan, c, data, run);
    for (std::int64_t column = 0; column < 3; ++column) {
      const Head head{c, data};
      const Vector want = std::holds_alternative<DeltaWrite>(write) ? delta_outputs(head, column)
                                                                    : low_rank_outputs(head, column);
      // Sums of 41 · 6 products below 1, behind a system whose inverse has elements below 1.
      for (std::int64_t i = 0; i < 41; ++i)
        ASSERT_NEAR(element(run.output.storage, i * 3 + column), want[static_cast<std::size_t>(i)],
                    41 * 6 * 41 * 0x1p-52)
            << to_string(c.spec) << " token " << i;
    }
  }
}

}  // namespace
}  // namespace fovea::testing
