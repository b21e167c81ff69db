// Trees of tokens: every token is what decoding along its path gives, to the bit.
#include <gtest/gtest.h>

#include "fovea/core/executor.h"
#include "fovea/plan/recurrence_tree.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

class RecurrenceTrees : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, RecurrenceTrees, ::testing::ValuesIn(runnable_recurrence_kernels()),
                         kernel_name);

std::vector<RecurrenceCase> cases() {
  std::vector<RecurrenceCase> list;
  for (const Write& write :
       {Write(AdditiveWrite{}), Write(DeltaWrite{}), Write(DiagonalPlusLowRankWrite{})}) {
    for (const Decay& decay :
         {Decay(NoDecay{}), Decay(ConstantDecay{}), Decay(ScalarDecay{}), Decay(KeyDecay{})}) {
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        RecurrenceCase c{.spec = {.decay = decay, .write = write}, .dtype = dtype};
        if (std::holds_alternative<AdditiveWrite>(write) && dtype == DType::f32) {
          c.spec.feature_map = EluPlusOne{};
          c.spec.normalizer = KeySum{};
        }
        c.has_state = dtype != DType::bf16;
        c.shape = {.batch = 2,
                   .num_query_heads = 2,
                   .num_key_heads = 1,
                   .num_heads = 2,
                   .len = 17,
                   .key_dim = 8,
                   .value_dim = 12};
        c.seed = 5 + list.size();
        c.name = to_string(c.spec) + " " + std::string(to_string(dtype));
        list.push_back(c);
      }
    }
  }
  return list;
}

// Parents drawn from all earlier tokens, from the last few, or always the token before.
std::vector<std::int64_t> drawn_parents(std::uint64_t seed, std::int64_t len) {
  PhiloxStream random(seed);
  std::vector<std::int64_t> parents;
  const auto below = [&](std::int64_t n) {
    return std::min(n - 1, static_cast<std::int64_t>(static_cast<double>(random.next_uniform()) *
                                                     static_cast<double>(n)));
  };
  for (std::int64_t i = 0; i < len; ++i) {
    const std::int64_t kind = below(3);
    parents.push_back(kind == 0   ? below(i + 1) - 1
                      : kind == 1 ? std::max<std::int64_t>(-1, i - 1 - below(3))
                                  : i - 1);
  }
  return parents;
}

std::vector<std::int64_t> path_to(const std::vector<std::int64_t>& parents, std::int64_t token) {
  std::vector<std::int64_t> path;
  for (; token >= 0; token = parents[static_cast<std::size_t>(token)]) path.insert(path.begin(), token);
  return path;
}

RecurrenceInputs one_token(const RecurrenceData& data, std::int64_t token) {
  RecurrenceInputs in = data.views();
  for (ConstTensorView* view :
       {&in.query, &in.key, &in.value, &in.log_decay, &in.beta, &in.erase, &in.a, &in.b, &in.self_weight}) {
    if (*view && view->rank() > 2) *view = view->slice(2, token, 1);
  }
  return in;
}

TEST_P(RecurrenceTrees, TokensAreThoseOfTheirPathsOneByOne) {
  const auto pool = make_thread_pool(3);
  const std::string isa = GetParam().substr(0, GetParam().find(' '));
  for (const RecurrenceCase& c : cases()) {
    if (!runs(GetParam(), c.dtype)) continue;
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    RecurrenceShape one = c.plan_shape();
    one.len = 1;
    const RecurrencePlan step = make_recurrence_plan(c.spec, one, {.dtype = c.dtype, .kernel = isa});
    const std::vector<std::int64_t> parents = drawn_parents(c.seed, c.shape.len);
    const Tensor output = unwritten(c.dtype, {2, 2, c.shape.len, c.shape.value_dim});
    recur_tree(plan, data.views(), parents, output, {.executor = pool.get()});
    for (std::int64_t token = 0; token < c.shape.len; ++token) {
      Tensor state = Tensor::zeros(c.wide_dtype(), state_shape(c.spec, checked_shape(c.spec, c.shape), 2));
      if (c.has_state) state = Tensor::copy_of(data.inputs.initial_state.view);
      const Tensor at_end = state.clone(), row(c.dtype, {2, 2, 1, c.shape.value_dim});
      const std::vector<std::int64_t> path = path_to(parents, token);
      for (const std::int64_t t : path) {
        RecurrenceInputs in = one_token(data, t);
        in.initial_state = state;
        recur(step, in, {.output = row, .final_state = state});
      }
      RecurrenceInputs in = data.views();
      in.initial_state = at_end;
      advance_along(plan, in, path, at_end, {.executor = pool.get()});
      expect_same_bits({row, state}, {Tensor::copy_of(output.view().slice(2, token, 1)), at_end});
      if (HasFailure()) FAIL() << c.name << ", token " << token;
    }
  }
}

// A chain is a tree.
TEST_P(RecurrenceTrees, AChainAgreesWithRecur) {
  for (const RecurrenceCase& c : cases()) {
    if (c.dtype == DType::bf16 || !runs(GetParam(), c.dtype)) continue;
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    std::vector<std::int64_t> parents;
    for (std::int64_t i = 0; i < c.shape.len; ++i) parents.push_back(i - 1);
    const Tensor output = unwritten(c.dtype, {2, 2, c.shape.len, c.shape.value_dim});
    recur_tree(plan, data.views(), parents, output);
    const Tensor whole = unwritten(c.dtype, output.shape());
    recur(plan, data.views(), {.output = whole});
    // Chunks add up in another order. Errors are those of the case table.
    const double epsilon = c.dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
    expect_near(output, whole, 64 * epsilon * static_cast<double>(c.shape.len + c.shape.key_dim), c.name);
  }
}

TEST(RecurrenceTree, WrongTreesAreRefusedAndNothingIsWritten) {
  RecurrenceCase c{.spec = {.decay = ScalarDecay{}}};
  c.shape = {.batch = 1, .len = 4, .key_dim = 8, .value_dim = 8};
  const RecurrenceData data(c);
  const RecurrencePlan plan = make_recurrence_plan(c.spec, c.plan_shape());
  const Tensor output = Tensor::zeros(DType::f32, {1, 1, 4, 8}),
               state = Tensor::zeros(DType::f32, state_shape(c.spec, checked_shape(c.spec, c.shape), 1));
  const auto refused = [&](const RecurrenceInputs& in, const std::vector<std::int64_t>& parents) {
    try {
      recur_tree(plan, in, parents, output);
    } catch (const InvalidArgument& error) {
      for (std::int64_t i = 0; i < output.count(); ++i) EXPECT_EQ(output.data<float>()[i], 0.0f);
      return error.argument();
    }
    return std::string("nothing");
  };
  const std::vector<std::int64_t> chain{-1, 0, 1, 2};
  EXPECT_EQ(refused(data.views(), {-1, 0, 1}), "parents");
  EXPECT_EQ(refused(data.views(), {-1, 0, 2, 1}), "parents[2]");
  EXPECT_EQ(refused(data.views(), {-1, -2, 0, 1}), "parents[1]");
  RecurrenceInputs in = data.views();
  const std::vector<std::uint8_t> present{1, 1, 0, 1};
  in.present = present;
  EXPECT_EQ(refused(in, chain), "present");
  in = data.views();
  const std::vector<std::int64_t> starts{0, 2, 4};
  in.sequence_starts = starts;
  EXPECT_EQ(refused(in, chain), "sequence_starts");
  in = data.views();
  const Tensor gates = Tensor::copy_of(in.log_decay);
  gates.data<float>()[3] = 0.5f;  // of the last token
  in.log_decay = gates;
  EXPECT_EQ(refused(in, chain), "log_decay");
  EXPECT_EQ(refused(data.views(), chain), "nothing");
  const auto path_refused = [&](const std::vector<std::int64_t>& path) {
    try {
      advance_along(plan, data.views(), path, state);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  EXPECT_EQ(path_refused({0, 0}), "path[1]");
  EXPECT_EQ(path_refused({2, 4}), "path[1]");
  EXPECT_EQ(path_refused({-1}), "path[0]");
  EXPECT_EQ(path_refused({1, 3}), "nothing");
}

}  // namespace
}  // namespace fovea::testing
