// Maps of states: a stretch of tokens, summarised, composed and applied.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fovea/plan/recurrence_segment.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

class RecurrenceSegments : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, RecurrenceSegments, ::testing::ValuesIn(runnable_recurrence_kernels()),
                         kernel_name);

std::vector<RecurrenceCase> cases(std::int64_t batch = 2) {
  std::vector<RecurrenceCase> list;
  for (const RecurrenceSpec& spec :
       {RecurrenceSpec{}, RecurrenceSpec{.decay = ConstantDecay{}}, RecurrenceSpec{.decay = ScalarDecay{}},
        RecurrenceSpec{.decay = KeyDecay{}, .read = BeforeDecay{}},
        RecurrenceSpec{.feature_map = EluPlusOne{}, .decay = ScalarDecay{}, .normalizer = KeySum{}},
        RecurrenceSpec{.write = DeltaWrite{}}, RecurrenceSpec{.decay = ScalarDecay{}, .write = DeltaWrite{}},
        RecurrenceSpec{.decay = KeyDecay{}, .write = DeltaWrite{}, .read = SelfWeight{}},
        RecurrenceSpec{.feature_map = EluPlusOne{}, .write = DeltaWrite{}, .normalizer = KeySum{}},
        RecurrenceSpec{.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}}}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      RecurrenceCase c{.name = to_string(spec) + " " + std::string(to_string(dtype)), .spec = spec};
      c.shape = {.batch = batch,
                 .num_query_heads = 2,
                 .num_key_heads = 1,
                 .num_heads = 2,
                 .len = 70,
                 .key_dim = 13,
                 .value_dim = 10};
      c.dtype = dtype;
      c.strongest_gate = -0.3;  // so that a state of the beginning still counts at the end
      list.push_back(c);
    }
  }
  return list;
}

// Sums of `len` products below 1, of states in f32 or f64, twice: the state that is multiplied, and the
// product.
double tolerance_of(const RecurrenceCase& c, const std::string& kernel) {
  // The operands of its products are rounded, independently of each other.
  if (!runs(kernel, DType::f32)) return 4 * 0x1p-8 * std::sqrt(static_cast<double>(c.shape.len));
  return 128 * (c.dtype == DType::f64 ? 0x1p-52 : 0x1p-23) *
         static_cast<double>(c.shape.len + c.shape.key_dim);
}

RecurrencePlan plan_of(const RecurrenceCase& c, const std::string& kernel) {
  return make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = kernel});
}

// Tokens [begin, begin + count), without an initial state.
RecurrenceInputs tokens_of(const RecurrenceData& data, std::int64_t begin, std::int64_t count) {
  RecurrenceInputs in = data.views();
  for (ConstTensorView* view :
       {&in.query, &in.key, &in.value, &in.log_decay, &in.beta, &in.erase, &in.a, &in.b, &in.self_weight}) {
    if (*view && view->rank() > 2) *view = view->slice(2, begin, count);
  }
  in.initial_state = {};
  return in;
}

TEST_P(RecurrenceSegments, AMapGivesTheFinalState) {
  for (const RecurrenceCase& c : cases()) {
    if (!runs(GetParam(), c.dtype)) continue;
    const RecurrenceData data(c);
    const RecurrencePlan plan = plan_of(c, GetParam());
    RecurrenceRun run;
    run_forward(plan, c, data, run);
    const RecurrenceSegment segment = summarize(plan, tokens_of(data, 0, c.shape.len));
    expect_near(advance(plan, segment, data.inputs.initial_state.view), run.final_state,
                tolerance_of(c, GetParam()), c.name);
  }
}

TEST_P(RecurrenceSegments, ComposeToTheMapOfAllTokens) {
  for (const RecurrenceCase& c : cases()) {
    if (!runs(GetParam(), c.dtype)) continue;
    const RecurrenceData data(c);
    const RecurrencePlan plan = plan_of(c, GetParam());
    const RecurrenceSegment first = summarize(plan, tokens_of(data, 0, 16)),
                            second = summarize(plan, tokens_of(data, 16, 31)),
                            third = summarize(plan, tokens_of(data, 47, 23)),
                            all = summarize(plan, tokens_of(data, 0, 70));
    const RecurrenceSegment left = compose(plan, third, compose(plan, second, first)),
                            right = compose(plan, compose(plan, third, second), first);
    for (const RecurrenceSegment* segment : {&left, &right}) {
      expect_near(segment->transition, all.transition, tolerance_of(c, GetParam()), c.name + " transition");
      expect_near(segment->contribution, all.contribution, tolerance_of(c, GetParam()),
                  c.name + " contribution");
    }
    const RecurrenceSegment nothing = identity_segment(plan, 2);
    const RecurrenceSegment same = compose(plan, nothing, compose(plan, first, nothing));
    expect_same_bits({same.transition, same.contribution}, {first.transition, first.contribution});
    const RecurrenceSegment none = summarize(plan, tokens_of(data, 5, 0));
    expect_same_bits({none.transition, none.contribution}, {nothing.transition, nothing.contribution});
  }
}

// Packed sequences and tokens that are left out.
TEST_P(RecurrenceSegments, HaveOneMapForEverySequence) {
  for (RecurrenceCase c : cases()) {
    if (!runs(GetParam(), c.dtype)) continue;
    c.packing = Packing::packed_and_masked;
    const RecurrenceData data(c);
    const RecurrencePlan plan = plan_of(c, GetParam());
    RecurrenceRun run;
    run_forward(plan, c, data, run);
    RecurrenceInputs in = data.views();
    in.initial_state = {};
    expect_near(advance(plan, summarize(plan, in), data.inputs.initial_state.view), run.final_state,
                tolerance_of(c, GetParam()), c.name);
  }
}

TEST_P(RecurrenceSegments, PiecesGiveWhatOneCallGives) {
  for (const Packing packing : {Packing::padded, Packing::masked}) {
    for (RecurrenceCase c : cases(1)) {
      // Outputs of bf16 are rounded: the states are compared in the tests above.
      if (c.dtype == DType::bf16 || !runs(GetParam(), c.dtype)) continue;
      c.packing = packing;
      const RecurrenceData data(c);
      const RecurrencePlan plan = plan_of(c, GetParam());
      RecurrenceRun run;
      run_forward(plan, c, data, run);
      for (const std::int64_t piece : {16, 32, 64, 80}) {
        const Tensor output = unwritten_like(run.output.storage), state = unwritten_like(run.final_state);
        recur_in_pieces(plan, data.views(), {.output = output, .final_state = state}, piece);
        expect_near(output, run.output.storage, tolerance_of(c, GetParam()), c.name + " output");
        expect_near(state, run.final_state, tolerance_of(c, GetParam()), c.name + " state");
      }
    }
  }
}

TEST_P(RecurrenceSegments, PiecesGiveTheSameBitsForEveryThreadCount) {
  RecurrenceCase c = cases(1)[18];
  c.dtype = dtype_for(GetParam());
  ASSERT_TRUE(std::holds_alternative<DeltaWrite>(c.spec.write));
  const RecurrenceData data(c);
  const RecurrencePlan plan = plan_of(c, GetParam());
  expect_same_bits_for_every_thread_count([&](Executor& executor) {
    const Tensor output = unwritten(c.dtype, {1, 2, 70, 10}), state = unwritten_like(data.d_final_state);
    recur_in_pieces(plan, data.views(), {.output = output, .final_state = state}, 32,
                    {.executor = &executor});
    return std::vector<Tensor>{output, state};
  });
}

void write_bytes(int file, const Tensor& tensor) {
  const std::byte* bytes = tensor.raw();
  for (std::size_t sent = 0; sent < tensor.bytes();) {
    const ssize_t count = write(file, bytes + sent, tensor.bytes() - sent);
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}
Tensor read_bytes(int file, DType dtype, const Shape& shape) {
  const Tensor tensor = unwritten(dtype, shape);
  std::byte* bytes = tensor.raw();
  for (std::size_t got = 0; got < tensor.bytes();) {
    const ssize_t count = read(file, bytes + got, tensor.bytes() - got);
    if (count <= 0) break;
    got += static_cast<std::size_t>(count);
  }
  return tensor;
}

// A map is two tensors and nothing besides, so its bytes may be sent. Another process summarises the second
// half of a sequence, and this one puts it behind its own half.
TEST_P(RecurrenceSegments, MergeWithThoseOfAnotherProcess) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{18}}) {
    RecurrenceCase c = cases()[n];
    c.dtype = dtype_for(GetParam());
    const RecurrenceData data(c);
    const RecurrencePlan plan = plan_of(c, GetParam());
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const RecurrenceSegment later = summarize(plan, tokens_of(data, 32, 38));
      write_bytes(ends[1], later.transition);
      write_bytes(ends[1], later.contribution);
      _exit(0);
    }
    close(ends[1]);
    const RecurrenceSegment earlier = summarize(plan, tokens_of(data, 0, 32)),
                            here = summarize(plan, tokens_of(data, 32, 38));
    const Tensor transition = read_bytes(ends[0], here.transition.dtype(), here.transition.shape());
    const RecurrenceSegment sent{transition,
                                 read_bytes(ends[0], here.contribution.dtype(), here.contribution.shape())};
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    const RecurrenceSegment merged = compose(plan, sent, earlier), alone = compose(plan, here, earlier);
    expect_same_bits({merged.transition, merged.contribution}, {alone.transition, alone.contribution});
  }
}

TEST(RecurrenceSegmentCalls, RefuseWhatDoesNotFit) {
  const RecurrenceCase c = cases()[18];
  const RecurrenceData data(c);
  const RecurrencePlan plan = plan_of(c, "");
  const RecurrenceSegment segment = identity_segment(plan, 2), other = identity_segment(plan, 3);
  expect_refused([&] { summarize(plan, data.views()); }, "summarize", "initial_state");
  expect_refused([&] { summarize(plan, {}); }, "summarize", "key");
  expect_refused([&] { compose(plan, segment, other); }, "compose", "earlier.transition");
  expect_refused([&] { compose(plan, {}, segment); }, "compose", "later.transition");
  expect_refused([&] { advance(plan, segment, other.contribution); }, "advance", "states");
  const Tensor output = unwritten(c.dtype, {2, 2, 70, 10});
  expect_refused([&] { recur_in_pieces(plan, data.views(), {.output = output}, 7); }, "recur_in_pieces",
                 "piece");
  expect_refused([&] { recur_in_pieces(plan, data.views(), {.output = output}, 16); }, "recur_in_pieces",
                 "key");
}

}  // namespace
}  // namespace fovea::testing
