// Rotary position embeddings against complex numbers in double, and their identities.
#include "fovea/plan/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numeric>

#include "fovea/attention/expression.h"
#include "fovea/core/executor.h"
#include "plan/cases.h"

namespace fovea::testing {
namespace {

const std::vector<RopeScaling>& scalings() {
  static const std::vector<RopeScaling> all{NoScaling{},
                                            LinearScaling{3.0},
                                            NtkScaling{2.5},
                                            DynamicNtkScaling{2.0, 40},
                                            YarnScaling{.factor = 4.0, .original_max_positions = 200},
                                            YarnScaling{8.0, 4096, 16.0, 2.0, 1.0, YarnScaling::Ends::exact},
                                            Llama3Scaling{.factor = 8.0, .original_max_positions = 8192}};
  return all;
}

template <class Check>
void for_each_rope(Check check) {
  for (const RopeScaling& scaling : scalings()) {
    for (const RopeLayout layout : {RopeLayout::half_split, RopeLayout::interleaved}) {
      const Rope rope{.rotary_dim = 12, .base = 3000.0, .layout = layout, .scaling = scaling};
      SCOPED_TRACE(to_string(rope));
      check(rope);
    }
  }
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
  }
  return 0.0;
}

// The definition: pair i as a complex number, times attention_factor · e^(i · angle).
std::vector<double> turned(const Rope& rope, std::int64_t sequence_len, const Tensor& x, std::int64_t row,
                           std::int64_t position, double sign = 1.0) {
  const RopeFrequencies f = rope_frequencies(rope, sequence_len);
  const std::int64_t dim = x.size(3), half = rope.rotary_dim / 2;
  std::vector<double> result;
  for (std::int64_t e = 0; e < dim; ++e) result.push_back(element(x, row * dim + e));
  for (std::int64_t i = 0; i < half; ++i) {
    const bool split = rope.layout == RopeLayout::half_split;
    const auto a = static_cast<std::size_t>(split ? i : 2 * i),
               b = static_cast<std::size_t>(split ? half + i : 2 * i + 1);
    const double angle = sign * static_cast<double>(position) * f.inverse[static_cast<std::size_t>(i)];
    const std::complex<double> z =
        std::complex<double>(result[a], result[b]) * std::polar(f.attention_factor, angle);
    result[a] = z.real();
    result[b] = z.imag();
  }
  return result;
}

Tensor like(const Tensor& x) {
  Tensor result(x.dtype(), x.shape());
  result.fill(std::numeric_limits<double>::quiet_NaN());
  return result;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0.0;
  for (std::int64_t n = 0; n < a.count(); ++n) sum += element(a, n) * element(b, n);
  return sum;
}

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::int64_t n = 0; n < a.count(); ++n) ASSERT_EQ(element(a, n), element(b, n)) << n;
}

// Every dtype, scaling, layout, stride and form of positions against the definition.
TEST(RopeFunction, AgreesWithComplexNumbers) {
  const std::int64_t B = 2, H = 3, L = 9, D = 17, capacity = 64;
  std::vector<std::int64_t> shared(L), each(B * L);
  for (std::size_t l = 0; l < shared.size(); ++l) shared[l] = static_cast<std::int64_t>(l % 4);
  for (std::size_t n = 0; n < each.size(); ++n) each[n] = static_cast<std::int64_t>(n * 7 % 64);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for_each_rope([&](const Rope& rope) {
      const RopeTable table(rope, capacity, dtype);
      const Tensor x = random_tensor(dtype, {B, H, L, D}, 1), y = like(x), z = like(x);
      const std::int64_t strides[] = {H * L * D, D, H * D, 1};  // [batch, length, heads, dim] in memory
      const TensorView across(z.raw(), dtype, x.shape(), strides);
      // Results are below 2. Rounding to the dtype, and the roundings of a table's entry, of two products and
      // of a sum.
      const double bound = epsilon_of(dtype) / 2 + 4 * (dtype == DType::f64 ? 0x1p-52 : 0x1p-23);
      for (const int way : {0, 1, 2}) {
        const RopePositions positions = way == 0   ? RopePositions(5)
                                        : way == 1 ? RopePositions(shared)
                                                   : RopePositions(each);
        for (const double sign : {1.0, -1.0}) {
          const auto apply = sign > 0 ? rope_forward : rope_backward;
          apply(table, x, positions, y, nullptr);
          apply(table, x, positions, across, &serial_executor());
          const Tensor in_place = x.clone();
          apply(table, in_place, positions, in_place, nullptr);
          expect_same(y, in_place);
          expect_same(y, Tensor::copy_of(across));
          for (std::int64_t row = 0; row < B * H * L; ++row) {
            const std::int64_t b = row / (H * L), l = row % L;
            const std::int64_t position = way == 0   ? 5 + l
                                          : way == 1 ? shared[static_cast<std::size_t>(l)]
                                                     : each[static_cast<std::size_t>(b * L + l)];
            const std::vector<double> want = turned(rope, capacity, x, row, position, sign);
            for (std::int64_t e = 0; e < D; ++e) {
              const double got = element(y, row * D + e);
              if (e < rope.rotary_dim)
                ASSERT_NEAR(got, want[static_cast<std::size_t>(e)], bound) << row << " " << e;
              else
                ASSERT_EQ(got, want[static_cast<std::size_t>(e)]);
            }
          }
        }
      }
    });
  }
}

TEST(RopeFunction, AListOfConsecutivePositionsEqualsAFirstPosition) {
  const Tensor x = random_tensor(DType::f32, {2, 2, 50, 16}, 1), y = like(x), z = like(x);
  const RopeTable table({.rotary_dim = 16}, 60, DType::f32);
  std::vector<std::int64_t> list(50);
  std::iota(list.begin(), list.end(), 10);
  rope_forward(table, x, 10, y);
  rope_forward(table, x, RopePositions(list), z);
  expect_same(y, z);
}

// Mechanism 11.
TEST(RopeFunction, ScoresDependOnTheDifferenceOfPositions) {
  const std::int64_t Q = 6, K = 7, D = 14, shift = 29, capacity = 100;
  for_each_rope([&](const Rope& rope) {
    const RopeTable table(rope, capacity, DType::f64);
    const Tensor q = random_tensor(DType::f64, {1, 1, Q, D}, 1),
                 k = random_tensor(DType::f64, {1, 1, K, D}, 2);
    const auto scores = [&](std::int64_t by) {
      const Tensor rq = like(q), rk = like(k);
      rope_forward(table, q, 1 + by, rq);
      rope_forward(table, k, by, rk);
      std::vector<double> result;
      for (std::int64_t i = 0; i < Q; ++i) {
        for (std::int64_t j = 0; j < K; ++j) {
          double sum = 0.0;
          for (std::int64_t e = 0; e < D; ++e) sum += element(rq, i * D + e) * element(rk, j * D + e);
          result.push_back(sum);
        }
      }
      return result;
    };
    const std::vector<double> here = scores(0), there = scores(shift);
    for (std::size_t n = 0; n < here.size(); ++n)
      EXPECT_NEAR(here[n], there[n], D * 2 * capacity * 0x1p-52) << n;
  });
}

TEST(RopeFunction, TurningKeepsNormsAndTurningBackUndoesIt) {
  for_each_rope([&](const Rope& rope) {
    const Tensor x = random_tensor(DType::f64, {2, 3, 8, 15}, 3), y = like(x), back = like(x);
    const RopeTable table(rope, 30, DType::f64);
    const double factor = rope_frequencies(rope, 30).attention_factor;
    rope_forward(table, x, 4, y);
    rope_backward(table, y, 4, back);
    const double sums = static_cast<double>(x.count()) * 0x1p-53 * dot(x, x);  // the rounding of sums of this
                                                                               // many terms
    if (factor == 1.0) EXPECT_NEAR(dot(y, y), dot(x, x), sums);
    for (std::int64_t n = 0; n < x.count(); ++n) {
      const double scale = n % 15 < rope.rotary_dim ? factor * factor : 1.0;
      ASSERT_NEAR(element(back, n), scale * element(x, n), 1e-14) << n;
    }
  });
}

TEST(RopeFunction, BackwardIsTheTranspose) {
  for_each_rope([&](const Rope& rope) {
    const Tensor x = random_tensor(DType::f64, {2, 2, 5, 13}, 4), y = random_tensor(DType::f64, x.shape(), 5),
                 turned_x = like(x), back_y = like(x);
    const RopeTable table(rope, 50, DType::f64);
    std::vector<std::int64_t> list{3, 49, 0, 1, 17};
    rope_forward(table, x, RopePositions(list), turned_x);
    rope_backward(table, y, RopePositions(list), back_y);
    EXPECT_NEAR(dot(turned_x, y), dot(x, back_y), 1e-12);
    for (std::int64_t n = 0; n < x.count(); n += 7) {
      const double at = element(x, n), h = 1e-4;
      const auto loss = [&](double value) {
        set_element(x, n, value);
        rope_forward(table, x, RopePositions(list), turned_x);
        return dot(turned_x, y);
      };
      const double up = loss(at + h), down = loss(at - h);
      set_element(x, n, at);
      ASSERT_NEAR((up - down) / (2 * h), element(back_y, n), 1e-10) << n;
    }
  });
}

TEST(RopeFunction, LayoutsArePermutations) {
  const std::int64_t d = 10, D = 12, rows = 7;
  const Rope split{.rotary_dim = d}, interleaved{.rotary_dim = d, .layout = RopeLayout::interleaved};
  const Tensor x = random_tensor(DType::f32, {1, 1, rows, D}, 6), permuted = x.clone(), y = like(x),
               z = like(x);
  const auto place = [&](std::int64_t e) { return e >= d ? e : e < d / 2 ? 2 * e : 2 * (e - d / 2) + 1; };
  for (std::int64_t n = 0; n < x.count(); ++n) set_element(permuted, n / D * D + place(n % D), element(x, n));
  rope_forward(RopeTable(split, rows, DType::f32), x, 0, y);
  rope_forward(RopeTable(interleaved, rows, DType::f32), permuted, 0, z);
  for (std::int64_t n = 0; n < x.count(); ++n)
    EXPECT_EQ(element(y, n), element(z, n / D * D + place(n % D))) << n;
}

// Many units: more rows than one unit takes, and as many threads as there are.
TEST(RopeFunction, ThreadsDoNotChangeBits) {
  const auto pool = make_thread_pool(4);
  const Rope rope{.rotary_dim = 64, .scaling = YarnScaling{.factor = 4, .original_max_positions = 100}};
  const RopeTable one(rope, 1500, DType::f32, &serial_executor()), four(rope, 1500, DType::f32, pool.get());
  expect_same(Tensor::copy_of(one.cosines()), Tensor::copy_of(four.cosines()));
  expect_same(Tensor::copy_of(one.sines()), Tensor::copy_of(four.sines()));
  const Tensor x = random_tensor(DType::f32, {2, 3, 1500, 80}, 7), y = like(x), z = like(x);
  rope_forward(one, x, 0, y, &serial_executor());
  rope_forward(one, x, 0, z, pool.get());
  expect_same(y, z);
  const std::vector<double> last = turned(rope, 1500, x, x.count() / 80 - 1, 1499);
  for (std::int64_t e = 0; e < 80; ++e)
    EXPECT_NEAR(element(y, x.count() - 80 + e), last[static_cast<std::size_t>(e)], 1e-6);
}

double number_at(const ConstTensorView& table, std::int64_t position, std::int64_t pair) {
  if (table.dtype() == DType::f64) return table.at<double>({position, pair});
  return static_cast<double>(table.at<float>({position, pair}));
}

// Tables that were made elsewhere give the same rotation as those of a Rope, also with their own strides.
TEST(RopeFunction, BorrowedTables) {
  for_each_rope([](const Rope& rope) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const RopeTable own(rope, 40, dtype);
      const Tensor wide(own.cosines().dtype(), {40, 13});
      const TensorView cosines = wide.view().slice(1, 0, 6), sines = wide.view().slice(1, 7, 6);
      for (std::int64_t p = 0; p < 40; ++p) {
        for (std::int64_t i = 0; i < 6; ++i) {
          set_element(wide, p * 13 + i, number_at(own.cosines(), p, i));
          set_element(wide, p * 13 + 7 + i, number_at(own.sines(), p, i));
        }
      }
      const RopeTable borrowed(cosines, sines, rope.layout);
      EXPECT_EQ(borrowed.rotary_dim(), rope.rotary_dim);
      EXPECT_EQ(borrowed.positions(), 40);
      const Tensor x = random_tensor(dtype, {2, 3, 7, 14}, 3), y = like(x), z = like(x);
      const std::vector<std::int64_t> listed{39, 0, 3, 3, 8, 20, 1};
      for (const auto function : {rope_forward, rope_backward}) {
        for (const RopePositions positions : {RopePositions(33), RopePositions(std::span(listed))}) {
          function(own, x, positions, y, nullptr);
          function(borrowed, x, positions, z, nullptr);
          for (std::int64_t n = 0; n < x.count(); ++n) ASSERT_EQ(element(y, n), element(z, n));
        }
      }
    }
  });
}

TEST(RopeFunction, TablesOfEachBatchEntry) {
  const RopeTable all({.rotary_dim = 8}, 20, DType::f32);
  // Entry b's table begins at position 10·b.
  const std::int64_t strides[] = {40, 4, 1};
  const ConstTensorView cosines(all.cosines().raw(), DType::f32, Shape{2, 10, 4}, strides),
      sines(all.sines().raw(), DType::f32, Shape{2, 10, 4}, strides);
  const RopeTable each(cosines, sines, RopeLayout::half_split);
  EXPECT_EQ(each.positions(), 10);
  const Tensor x = random_tensor(DType::f32, {2, 3, 4, 8}, 5), y = like(x), z = like(x);
  const std::vector<std::int64_t> listed{0, 9, 2, 2, 5, 6, 7, 0}, shifted{0, 9, 2, 2, 15, 16, 17, 10};
  rope_forward(each, x, RopePositions(listed), y);
  rope_forward(all, x, RopePositions(shifted), z);
  for (std::int64_t n = 0; n < x.count(); ++n) ASSERT_EQ(element(y, n), element(z, n));
  const Tensor three(DType::f32, {3, 3, 4, 8});
  EXPECT_THROW(rope_forward(each, three, 0, three), InvalidArgument);
  EXPECT_THROW(rope_forward(each, x, 7, y), InvalidArgument);
}

TEST(RopeFunction, EmptyViews) {
  const RopeTable none({.rotary_dim = 8}, 0, DType::f32);
  const Tensor empty(DType::f32, {2, 3, 0, 8}), no_batch(DType::f32, {0, 3, 0, 8});
  EXPECT_NO_THROW(rope_forward(none, empty, 0, empty));
  EXPECT_NO_THROW(rope_forward(none, no_batch, RopePositions(std::span<const std::int64_t>()), no_batch));
}

TEST(RopeFunction, ArgumentsAreCheckedByName) {
  const RopeTable table({.rotary_dim = 8}, 20, DType::f32), wide({.rotary_dim = 8}, 20, DType::f64);
  const Tensor x = random_tensor(DType::f32, {2, 2, 6, 10}, 1);
  Tensor y = like(x);
  const auto refused = [&](const std::string& argument, ConstTensorView input, RopePositions positions,
                           TensorView output, const RopeTable* with = nullptr) {
    for (const bool forward : {true, false}) {
      try {
        (forward ? rope_forward : rope_backward)(with ? *with : table, input, positions, output, nullptr);
        ADD_FAILURE() << argument;
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.function(), forward ? "rope_forward" : "rope_backward");
        const std::string back = argument == "input"    ? "d_output"
                                 : argument == "output" ? "d_input"
                                                        : argument;
        EXPECT_EQ(error.argument(), forward ? argument : back) << error.what();
      }
    }
  };
  const std::vector<std::int64_t> six(6, 19), twelve(12, 0), seven(7, 0), far{0, 1, 2, 3, 4, 20},
      negative{0, 0, -1, 0, 0, 0};
  EXPECT_NO_THROW(rope_forward(table, x, 14, y));
  EXPECT_NO_THROW(rope_forward(table, x, RopePositions(six), y));
  EXPECT_NO_THROW(rope_forward(table, x, RopePositions(twelve), y));
  y.fill(0.0);
  for (const std::int64_t first :
       {std::int64_t{-1}, std::int64_t{15}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()})
    refused("positions", x, first, y);
  for (const auto* list : {&seven, &far, &negative}) refused("positions", x, RopePositions(*list), y);
  refused("positions", x, RopePositions(std::span<const std::int64_t>()), y);
  refused("input", Tensor(DType::f32, {2, 6, 10}), 0, y);
  refused("input", x.view().slice(3, 0, 7), 0, y);
  refused("input", Tensor(DType::f64, x.shape()), 0, y);
  refused("input", x, 0, y, &wide);
  refused("input", ConstTensorView(nullptr, DType::f32, x.shape()), 0, y);
  refused("output", x, 0, Tensor(DType::bf16, x.shape()));
  const Tensor memory = Tensor::zeros(DType::f32, {240});
  const RopeTable inside(ConstTensorView(memory.raw(), DType::f32, Shape{20, 4}),
                         ConstTensorView(memory.raw(), DType::f32, Shape{20, 4}), RopeLayout::half_split);
  refused("output", x, 0, TensorView(memory.raw(), DType::f32, x.shape()), &inside);
  refused("output", x, 0, Tensor(DType::f32, {2, 2, 6, 12}));
  const std::int64_t apart[] = {240, 120, 20, 2}, repeated[] = {120, 60, 0, 1}, swapped[] = {60, 120, 10, 1};
  const Tensor large = Tensor::zeros(DType::f32, {1000});
  refused("input", ConstTensorView(large.raw(), DType::f32, x.shape(), apart), 0, y);
  refused("output", x, 0, TensorView(large.raw(), DType::f32, x.shape(), apart));
  refused("output", x, 0, TensorView(large.raw(), DType::f32, x.shape(), repeated));
  // In place means the same view. A shifted view, or one with exchanged axes, is a different one.
  const TensorView here(large.raw(), DType::f32, x.shape());
  EXPECT_NO_THROW(rope_forward(table, here, 0, here));
  refused("output", here, 0, TensorView(large.raw() + 40, DType::f32, x.shape()));
  refused("output", here, 0, TensorView(large.raw(), DType::f32, x.shape(), swapped));
  EXPECT_NO_THROW(rope_forward(table, here, 0, TensorView(large.raw() + 960, DType::f32, x.shape())));
  for (std::int64_t n = 0; n < y.count(); ++n) ASSERT_EQ(element(y, n), 0.0);  // refused: nothing is written
}

}  // namespace
}  // namespace fovea::testing
