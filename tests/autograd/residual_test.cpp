#include "fovea/autograd/residual.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "autograd/central_differences.h"
#include "autograd/drawn.h"
#include "fovea/core/executor.h"
#include "fovea/core/memory.h"

namespace fovea::autograd {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

struct Seam {
  RowNorm::Kind kind = RowNorm::Kind::layer;
  bool beta = true;
  float offset = 0.0f, rate = 0.0f;
  ResidualSum read = ResidualSum::read;
  std::int64_t rows = 1, dim = 1;

  std::string name() const {
    return std::string(kind == RowNorm::Kind::layer ? "layer" : "rms") + (beta ? " beta" : "") + " offset " +
           std::to_string(offset) + " rate " + std::to_string(rate) +
           (read == ResidualSum::read ? " sum" : "") + " " + std::to_string(rows) + " x " +
           std::to_string(dim);
  }
  RowNorm norm(const Var& gamma, const Var& shift) const {
    return {
        .kind = kind, .gamma = gamma, .beta = beta ? shift : Var(), .epsilon = 1e-5f, .gamma_offset = offset};
  }
  DropoutOf dropout() const { return {rate, 11, 5}; }
};

std::vector<Seam> seams() {
  std::vector<Seam> result;
  for (const auto& [rows, dim] :
       {std::pair<std::int64_t, std::int64_t>{1, 5}, {16, 128}, {17, 19}, {300, 48}})
    for (const float rate : {0.0f, 0.3f})
      for (const ResidualSum read : {ResidualSum::read, ResidualSum::not_read}) {
        result.push_back({.rate = rate, .read = read, .rows = rows, .dim = dim});
        result.push_back(
            {.beta = false, .offset = 1.0f, .rate = rate, .read = read, .rows = rows, .dim = dim});
        result.push_back({.kind = RowNorm::Kind::rms,
                          .beta = false,
                          .rate = rate,
                          .read = read,
                          .rows = rows,
                          .dim = dim});
      }
  return result;
}

// The operations one by one.
ResidualNorm separate(const Seam& seam, const Var& x, const Var& y, const RowNorm& norm) {
  const Var sum = add(x, seam.rate > 0.0f ? dropout(y, seam.rate, 11, 5) : y);
  return {sum, norm.kind == RowNorm::Kind::layer
                   ? layer_norm(sum, norm.gamma, norm.beta, norm.epsilon, norm.gamma_offset)
                   : rms_norm(sum, norm.gamma, norm.epsilon, norm.gamma_offset)};
}

enum class Readers { normed, sum, both };

// The results and all gradients of a loss that reads x before and behind the seam.
template <class Make>
std::vector<Tensor> run(const Seam& seam, Readers readers, Make&& make) {
  Parameter of_x = parameter({seam.rows, seam.dim}, 1), of_y = parameter({seam.rows, seam.dim}, 2),
            gamma = parameter({seam.dim}, 3), beta = parameter({seam.dim}, 4);
  Tape tape;
  const Var x = tanh(tape.use(of_x)), y = tanh(tape.use(of_y));
  const Var before = multiply(x, x);
  const ResidualNorm made = make(x, y, seam.norm(tape.use(gamma), tape.use(beta)));
  Var loss = add(weighed(before), weighed(multiply(x, y)));
  if (readers != Readers::sum) loss = add(loss, weighed(tanh(made.normed)));
  if (readers != Readers::normed) loss = add(loss, weighed(tanh(made.sum)));
  std::vector<Tensor> result{made.normed.value().clone()};
  if (!made.sum.empty() && seam.read == ResidualSum::read) result.push_back(made.sum.value().clone());
  tape.backward(reshape(loss, {1}));
  for (const Parameter* p : {&of_x, &of_y, &gamma, &beta}) result.push_back(p->gradient);
  return result;
}

TEST(ResidualNorm, HasTheBitsOfTheOperationsOneByOne) {
  for (const Seam& seam : seams()) {
    for (const Readers readers : {Readers::normed, Readers::sum, Readers::both}) {
      if (readers != Readers::normed && seam.read == ResidualSum::not_read) continue;
      const auto expected = run(seam, readers, [&](const Var& x, const Var& y, const RowNorm& n) {
        return separate(seam, x, y, n);
      });
      for (const int threads : {1, 2, 5}) {
        const auto pool = make_thread_pool(threads);
        set_default_executor(pool.get());
        const auto got = run(seam, readers, [&](const Var& x, const Var& y, const RowNorm& n) {
          return residual_norm(x, y, n, seam.dropout(), {.sum = seam.read});
        });
        set_default_executor(nullptr);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(same_bits(got[i], expected[i]))
              << seam.name() << ", readers " << static_cast<int>(readers) << ", " << threads << " threads, "
              << i;
      }
    }
  }
}

TEST(ResidualNorm, WithoutATapeHasTheSameBits) {
  for (const Seam& seam : seams()) {
    const Tensor x = drawn({seam.rows, seam.dim}, 1), y = drawn({seam.rows, seam.dim}, 2);
    const RowNorm norm = seam.norm(Var(drawn({seam.dim}, 3)), Var(drawn({seam.dim}, 4)));
    const ResidualNorm expected = separate(seam, x, y, norm),
                       got = residual_norm(x, y, norm, seam.dropout(), {.sum = seam.read});
    EXPECT_TRUE(same_bits(got.normed.value(), expected.normed.value())) << seam.name();
    ASSERT_EQ(got.sum.empty(), seam.read == ResidualSum::not_read);
    if (!got.sum.empty()) EXPECT_TRUE(same_bits(got.sum.value(), expected.sum.value())) << seam.name();
    EXPECT_TRUE(same_bits(residual(x, y, seam.dropout()).value(), expected.sum.value())) << seam.name();
  }
}

// Rows for products of bf16: those of f32, rounded once, beside them or alone.
TEST(ResidualNorm, RoundsItsRowsToBf16) {
  for (const Seam& seam : seams()) {
    SCOPED_TRACE(seam.name());
    const Tensor x = drawn({seam.rows, seam.dim}, 1), y = drawn({seam.rows, seam.dim}, 2);
    const RowNorm norm = seam.norm(Var(drawn({seam.dim}, 3)), Var(drawn({seam.dim}, 4)));
    const auto made = [&](NormedRows normed) {
      return residual_norm(x, y, norm, seam.dropout(), {.sum = seam.read, .normed = normed});
    };
    const ResidualNorm wide = made(NormedRows::f32), both = made(NormedRows::both),
                       narrow = made(NormedRows::bf16);
    EXPECT_TRUE(wide.rounded.empty());
    EXPECT_TRUE(narrow.normed.empty());
    EXPECT_TRUE(same_bits(both.normed.value(), wide.normed.value()));
    for (const ResidualNorm& one : {both, narrow}) {
      ASSERT_EQ(one.sum.empty(), seam.read == ResidualSum::not_read);
      if (!one.sum.empty()) EXPECT_TRUE(same_bits(one.sum.value(), wide.sum.value()));
      ASSERT_EQ(one.rounded.value().dtype(), DType::bf16);
      ASSERT_EQ(one.rounded.shape(), wide.normed.shape());
      for (std::int64_t i = 0; i < wide.normed.value().count(); ++i)
        ASSERT_EQ(one.rounded.value().data<bfloat16>()[i].bits,
                  bfloat16(wide.normed.value().data<float>()[i]).bits);
    }
  }
}

TEST(Residual, HasTheGradientsOfTheOperationsOneByOne) {
  for (const float rate : {0.0f, 0.3f}) {
    const Seam seam{.rate = rate, .rows = 17, .dim = 19};
    const auto sum_alone = [&](auto&& make) {
      return run(seam, Readers::sum, [&](const Var& x, const Var& y, const RowNorm&) {
        const Var sum = make(x, y);
        return ResidualNorm{sum, sum};
      });
    };
    const auto expected = sum_alone(
        [&](const Var& x, const Var& y) { return add(x, rate > 0.0f ? dropout(y, rate, 11, 5) : y); });
    const auto got = sum_alone([&](const Var& x, const Var& y) { return residual(x, y, seam.dropout()); });
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], expected[i])) << rate << ", " << i;
  }
}

TEST(Gradient, Residuals) {
  for (const float rate : {0.0f, 0.3f}) {
    const DropoutOf dropout{rate, 5, 6};
    check({parameter({5, 13}, 1), parameter({5, 13}, 2)},
          [=](const auto& v) { return residual(v[0], v[1], dropout); });
    check({parameter({5, 13}, 1)}, [=](const auto& v) { return residual(v[0], v[0], dropout); });
    for (const auto kind : {RowNorm::Kind::layer, RowNorm::Kind::rms}) {
      const auto norm_of = [=](const auto& v) {
        return RowNorm{.kind = kind, .gamma = v[2], .beta = kind == RowNorm::Kind::layer ? v[3] : Var()};
      };
      const auto inputs = [] {
        return std::vector<Parameter>{parameter({5, 19}, 1), parameter({5, 19}, 2), parameter({19}, 3),
                                      parameter({19}, 4)};
      };
      check(inputs(), [=](const auto& v) {
        const ResidualNorm made = residual_norm(v[0], v[1], norm_of(v), dropout);
        return multiply(made.sum, made.normed);
      });
      check(inputs(), [=](const auto& v) {
        return residual_norm(v[0], v[1], norm_of(v), dropout, {.sum = ResidualSum::not_read}).normed;
      });
      check(inputs(), [=](const auto& v) {
        return residual_norm(v[0], v[0], norm_of(v), dropout, {.sum = ResidualSum::not_read}).normed;
      });
    }
  }
}

TEST(ResidualNorm, BackwardKeepsTheSumAndNeitherInput) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "under the address sanitizer tensors come from operator new";
#endif
  constexpr std::int64_t rows = 512, dim = 512;
  Tape tape;
  Parameter of_x = parameter({rows, dim}, 1), gamma = parameter({dim}, 2);
  const std::size_t before = tensor_memory().used;
  const auto make = [&] {
    Var x = scale(tape.use(of_x), 2.0f), y = scale(tape.use(of_x), 3.0f);  // backward of these reads nothing
    return residual_norm(x, y, {.gamma = tape.use(gamma)}, {0.1f, 1, 2}, {.sum = ResidualSum::not_read});
  };
  const ResidualNorm made = make();
  constexpr std::size_t tensor = rows * dim * sizeof(float);
  EXPECT_LT(tensor_memory().used - before, 2 * tensor + tensor / 8);
  tape.backward(reshape(weighed(made.normed), {1}));
}

TEST(ResidualNorm, Refusals) {
  const Tensor x = drawn({4, 6}, 1), gamma = drawn({6}, 2);
  const auto argument = [](auto&& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  EXPECT_EQ(argument([&] { residual(x, drawn({6, 4}, 3)); }), "y");
  EXPECT_EQ(argument([&] { residual(x, x, {.rate = 1.0f}); }), "dropout.rate");
  EXPECT_EQ(argument([&] { residual_norm(x, drawn({4, 5}, 3), {.gamma = gamma}); }), "y");
  EXPECT_EQ(argument([&] { residual_norm(x, x, {.gamma = drawn({5}, 3)}); }), "gamma");
  EXPECT_EQ(argument([&] { residual_norm(x, x, {.gamma = gamma, .beta = drawn({5}, 3)}); }), "beta");
  Tape tape;
  Parameter recorded = parameter({4, 6}, 4);
  for (const NormedRows normed : {NormedRows::bf16, NormedRows::both})
    EXPECT_EQ(
        argument([&] { residual_norm(tape.use(recorded), x, {.gamma = gamma}, {}, {.normed = normed}); }),
        "reads.normed");
}

}  // namespace
}  // namespace fovea::autograd
