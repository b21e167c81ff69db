// Decoding: calls of one token. A plan for them goes token by token, and any cut of a sequence keeps the
// bits.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/cpu.h"
#include "fovea/core/executor.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

// The kernels that go token by token.
std::vector<std::string> step_kernels() {
  std::vector<std::string> names = runnable_recurrence_kernels();
  std::erase_if(names, [](const std::string& name) { return name.find(" step") == std::string::npos; });
  return names;
}

class RecurrenceSteps : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, RecurrenceSteps, ::testing::ValuesIn(step_kernels()), kernel_name);

// Columns of whole vectors, and those behind them by smaller ones. Query heads that share a
// state, and that share a key.
std::vector<RecurrenceCase> cases(std::int64_t len) {
  std::vector<RecurrenceCase> list;
  for (const Write& write :
       {Write(AdditiveWrite{}), Write(DeltaWrite{}), Write(DiagonalPlusLowRankWrite{})}) {
    for (const Read& read : {Read(AfterWrite{}), Read(BeforeDecay{}), Read(SelfWeight{})}) {
      for (const Decay& decay :
           {Decay(NoDecay{}), Decay(ConstantDecay{}), Decay(ScalarDecay{}), Decay(KeyDecay{})}) {
        for (const std::int64_t value_dim : {32, 31, 20}) {
          RecurrenceCase c{.spec = {.decay = decay, .write = write, .read = read}};
          if (value_dim == 20 && std::holds_alternative<AdditiveWrite>(write)) {
            c.spec.feature_map = EluPlusOne{};
            c.spec.normalizer = KeySum{};
          }
          c.name = to_string(c.spec);
          c.shape = {.batch = 3,
                     .num_query_heads = 4,
                     .num_key_heads = 1,
                     .num_heads = 2,
                     .len = len,
                     .key_dim = 24,
                     .value_dim = value_dim};
          list.push_back(c);
        }
      }
    }
  }
  return list;
}

RecurrenceInputs slice_of(const RecurrenceData& data, std::int64_t entry, std::int64_t entries,
                          std::int64_t token) {
  RecurrenceInputs in = data.views();
  for (ConstTensorView* view :
       {&in.query, &in.key, &in.value, &in.log_decay, &in.beta, &in.erase, &in.a, &in.b, &in.self_weight}) {
    if (*view && view->rank() > 2) *view = view->slice(0, entry, entries).slice(2, token, 1);
  }
  return in;
}

// Every token in a call of its own, of `entries` entries from `entry` on, with the state updated in place.
std::pair<Tensor, Tensor> decode(const RecurrencePlan& plan, const RecurrenceCase& c,
                                 const RecurrenceData& data, std::int64_t entry, std::int64_t entries,
                                 Executor& executor) {
  const Tensor output = unwritten(c.dtype, {entries, 4, c.shape.len, c.shape.value_dim});
  const Tensor state =
      Tensor::copy_of(ConstTensorView(data.inputs.initial_state.view).slice(0, entry, entries));
  for (std::int64_t i = 0; i < c.shape.len; ++i) {
    RecurrenceInputs in = slice_of(data, entry, entries, i);
    in.initial_state = state;
    recur(plan, in, {.output = output.view().slice(2, i, 1), .final_state = state}, {.executor = &executor});
  }
  return {output, state};
}

// The bits of a token do not depend on the calls that a sequence is cut into, nor on the other sequences, nor
// on the threads.
TEST_P(RecurrenceSteps, OneTokenCallsGiveTheBitsOfOneCall) {
  const auto pool = make_thread_pool(3);
  for (const RecurrenceCase& c : cases(7)) {
    const RecurrenceData data(c);
    const RecurrencePlan plan = make_recurrence_plan(c.spec, c.plan_shape(), {.kernel = GetParam()});
    EXPECT_EQ(plan.chunk(), 1);
    RecurrenceRun whole;
    run_forward(plan, c, data, whole, pool.get());
    const auto [output, state] = decode(plan, c, data, 0, 3, *pool);
    expect_same_bits({output, state}, {whole.output.storage, whole.final_state});
    for (std::int64_t entry = 0; entry < 3; ++entry) {
      const auto [own, own_state] = decode(plan, c, data, entry, 1, serial_executor());
      expect_same_bits({own, own_state}, {Tensor::copy_of(output.view().slice(0, entry, 1)),
                                          Tensor::copy_of(state.view().slice(0, entry, 1))});
    }
    if (HasFailure()) FAIL() << c.name;
  }
}

// A state of 128 rows of 128 columns is more than one block of rows and of registers.
TEST_P(RecurrenceSteps, AgreeWithTheReferenceAtTheSizesOfModels) {
  for (const RecurrenceSpec& spec :
       {RecurrenceSpec{.decay = ScalarDecay{}}, RecurrenceSpec{.decay = KeyDecay{}, .write = DeltaWrite{}},
        RecurrenceSpec{.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}}}) {
    RecurrenceCase c{.name = to_string(spec), .spec = spec};
    c.shape = {.batch = 1, .len = 1, .key_dim = 128, .value_dim = 128};
    const RecurrenceData data(c);
    RecurrenceRun got, want;
    run_forward(make_recurrence_plan(spec, c.plan_shape(), {.kernel = GetParam()}), c, data, got);
    run_forward(make_recurrence_plan(spec, c.plan_shape(), {.kernel = "reference"}), c, data, want);
    // One product of 128 terms below 1, behind another one for the erasure.
    expect_near(got.output.storage, want.output.storage, 2 * 128 * 0x1p-24, c.name + " output");
    expect_near(got.final_state, want.final_state, 2 * 128 * 0x1p-24, c.name + " state");
  }
}

// A prompt by chunks and then steps, compared with all tokens by chunks. Errors are those of the case table.
TEST_P(RecurrenceSteps, GoOnWhereChunksEnded) {
  std::string chunked = GetParam();
  chunked.replace(chunked.find(" step"), 5, " chunked");
  for (const RecurrenceCase& c : cases(39)) {
    const RecurrenceData data(c);
    const RecurrencePlan by_chunks = make_recurrence_plan(c.spec, c.plan_shape(), {.kernel = chunked}),
                         by_steps = make_recurrence_plan(c.spec, c.plan_shape(), {.kernel = GetParam()});
    RecurrenceRun whole;
    run_forward(by_chunks, c, data, whole);
    const auto [steps, state] = decode(by_steps, c, data, 0, 3, serial_executor());
    const double tolerance = 64 * 0x1p-23 * static_cast<double>(c.shape.len + c.shape.key_dim);
    expect_near(steps, whole.output.storage, tolerance, c.name + " output");
    expect_near(state, whole.final_state, tolerance, c.name + " state");
    if (HasFailure()) FAIL() << c.name;
  }
}

TEST(RecurrencePlans, OfFewTokensGoTokenByToken) {
  if (std::getenv("FOVEA_ISA") || step_kernels().empty()) GTEST_SKIP() << "FOVEA_ISA chooses";
  const auto plan_of = [](std::int64_t len) { return make_recurrence_plan({}, {.len = len, .key_dim = 8}); };
  EXPECT_EQ(plan_of(1).kernel(), step_kernels().front());
  EXPECT_EQ(plan_of(4).kernel(), step_kernels().front());
  const RecurrencePlan longer = plan_of(5);
  EXPECT_NE(longer.kernel().find(" chunked"), std::string::npos);
  EXPECT_NE(explain(longer).find("refused " + step_kernels().front() +
                                 ": chunks are faster for plans of more than 4 tokens"),
            std::string::npos)
      << explain(longer);
  // Chunks of bf16 stand before the steps, and leave them the same plans.
  const auto bf16_kernel = [](std::int64_t len) {
    return std::string(make_recurrence_plan({}, {.len = len, .key_dim = 8}, {.dtype = DType::bf16}).kernel());
  };
  const std::string dots = "avx512bf16 chunked";
  EXPECT_EQ(bf16_kernel(4), step_kernels().front());
  EXPECT_EQ(bf16_kernel(5), cpu_has_fast_bf16_dots() ? dots : longer.kernel());
  // Who names an instruction set gets the kernels that it builds on for other types.
  if (runs(dots, DType::bf16))
    EXPECT_EQ(make_recurrence_plan({}, {.len = 5, .key_dim = 8}, {.kernel = "avx512bf16"}).kernel(),
              "avx512 chunked");
  // Who names it gets it.
  EXPECT_EQ(make_recurrence_plan({}, {.len = 99, .key_dim = 8}, {.kernel = step_kernels().front()}).kernel(),
            step_kernels().front());
}

}  // namespace
}  // namespace fovea::testing
