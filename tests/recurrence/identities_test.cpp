// Identities of recurrences, on every kernel of this machine: what must hold whatever the kernel does inside.
#include <gtest/gtest.h>

#include <cstring>

#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

class RecurrenceIdentities : public ::testing::TestWithParam<std::string> {
 protected:
  static RecurrenceCase case_of(const RecurrenceSpec& spec, std::int64_t len = 53) {
    RecurrenceCase c{.name = to_string(spec), .spec = spec, .dtype = dtype_for(GetParam())};
    c.shape = {.batch = 2,
               .num_query_heads = 2,
               .num_key_heads = 2,
               .num_heads = 2,
               .len = len,
               .key_dim = 24,
               .value_dim = 20};
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Kernel, RecurrenceIdentities, ::testing::ValuesIn(runnable_recurrence_kernels()),
                         kernel_name);

const std::vector<RecurrenceSpec>& specs() {
  static const std::vector<RecurrenceSpec> list{
      {},
      {.decay = ScalarDecay{}},
      {.decay = KeyDecay{}, .read = BeforeDecay{}},
      {.feature_map = EluPlusOne{}, .decay = ConstantDecay{}, .normalizer = KeySum{}},
      {.decay = ScalarDecay{}, .write = DeltaWrite{}},
      {.decay = KeyDecay{}, .write = DeltaWrite{}, .read = SelfWeight{}},
      {.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}}};
  return list;
}

// Sums of `len` products of numbers below 1, in f32. In bf16 the roundings of operands are independent, so
// that errors grow with the root of their number.
double tolerance_of(const RecurrenceCase& c) {
  const auto terms = static_cast<double>(c.shape.len + c.shape.key_dim);
  return c.dtype == DType::bf16 ? 2 * 0x1p-8 * std::sqrt(terms) : 64 * 0x1p-23 * terms;
}

Tensor outputs_of(const RecurrenceCase& c, const RecurrenceData& data, const std::string& kernel) {
  const RecurrencePlan plan =
      make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = kernel});
  RecurrenceRun run;
  run_forward(plan, c, data, run);
  return run.output.values();
}

TEST_P(RecurrenceIdentities, AdditiveIsTheMaskedQuadraticForm) {
  RecurrenceCase c = case_of({.decay = ScalarDecay{}});
  c.has_state = false;
  const RecurrenceData data(c);
  const Tensor output = outputs_of(c, data, GetParam());
  const auto& in = data.inputs;
  const std::int64_t dim = c.shape.key_dim, len = c.shape.len;
  for (std::int64_t bh = 0; bh < 4; ++bh) {
    const auto at = [&](const PlacedTensor& t, std::int64_t i, std::int64_t d) {
      return element(t.storage, (bh * len + i) * t.storage.size(3) + d);
    };
    for (std::int64_t i = 0; i < len; ++i) {
      double want = 0, between = 0;  // of column 0
      for (std::int64_t j = i; j >= 0; --j) {
        double score = 0;
        for (std::int64_t d = 0; d < dim; ++d) score += at(in.query, i, d) * at(in.key, j, d);
        want += score * std::exp(between) * at(in.value, j, 0) / std::sqrt(double(dim));
        between += in.log_decay.storage.data<float>()[bh * len + j];
      }
      ASSERT_NEAR(element(output, (bh * len + i) * c.shape.value_dim), want, tolerance_of(c)) << i;
    }
  }
}

// A view of tokens [begin, begin + count) of every operand.
RecurrenceInputs tokens_of(const RecurrenceData& data, std::int64_t begin, std::int64_t count) {
  RecurrenceInputs in = data.views();
  for (ConstTensorView* view :
       {&in.query, &in.key, &in.value, &in.log_decay, &in.beta, &in.erase, &in.a, &in.b, &in.self_weight}) {
    if (*view && view->rank() > 2) *view = view->slice(2, begin, count);
  }
  return in;
}

// Runs the tokens in two calls, the state in one tensor that is updated where it is.
std::pair<Tensor, Tensor> run_in_two(const RecurrencePlan& plan, const RecurrenceCase& c,
                                     const RecurrenceData& data, std::int64_t cut) {
  Tensor output = unwritten(c.dtype, {2, 2, c.shape.len, c.shape.value_dim});
  Tensor state = Tensor::copy_of(data.inputs.initial_state.view);
  for (const auto& [begin, count] :
       {std::pair<std::int64_t, std::int64_t>{0, cut}, {cut, c.shape.len - cut}}) {
    RecurrenceInputs in = tokens_of(data, begin, count);
    in.initial_state = state;
    recur(plan, in, {.output = output.view().slice(2, begin, count), .final_state = state});
  }
  return {output, state};
}

TEST_P(RecurrenceIdentities, ASequenceMayBeCutAnywhere) {
  for (const RecurrenceSpec& spec : specs()) {
    RecurrenceCase c = case_of(spec);
    if (GetParam() == "reference") c.dtype = DType::f64;  // its states are double, and f32 would round them
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    RecurrenceRun whole;
    run_forward(plan, c, data, whole);
    for (const std::int64_t cut : {std::int64_t{1}, std::int64_t{19}, plan.chunk(), 2 * plan.chunk()}) {
      const auto [output, state] = run_in_two(plan, c, data, cut);
      if (cut % plan.chunk() == 0)
        expect_same_bits({output, state}, {whole.output.storage, whole.final_state});
      expect_near(output, whole.output.storage, tolerance_of(c), c.name + " output");
      expect_near(state, whole.final_state, tolerance_of(c), c.name + " state");
    }
  }
}

TEST_P(RecurrenceIdentities, ASequenceOfAPackedBatchGivesTheBitsOfACallOfItsOwn) {
  for (const RecurrenceSpec& spec : specs()) {
    RecurrenceCase c = case_of(spec);
    c.packing = Packing::packed;
    const RecurrenceData data(c);
    const RecurrenceRun packed = run_case(c, data, GetParam());
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    for (std::size_t n = 0; n + 1 < data.starts.size(); ++n) {
      const std::int64_t begin = data.starts[n], count = data.starts[n + 1] - begin;
      RecurrenceInputs in = tokens_of(data, begin, count);
      in.sequence_starts = {};
      in.initial_state = data.inputs.initial_state.view.slice(0, static_cast<std::int64_t>(n), 1);
      const Tensor output = unwritten(c.dtype, {1, 2, count, c.shape.value_dim}),
                   d_key = unwritten(c.dtype, {1, 2, count, c.shape.key_dim});
      const Tensor denominator = unwritten(c.wide_dtype(), {1, 2, count});
      const bool sums = bool(packed.denominator);
      recur(plan, in, {.output = output, .denominator = sums ? denominator.view() : TensorView()});
      recur_backward(
          plan, in,
          {.d_output = data.d_output.view.slice(2, begin, count),
           .d_final_state = ConstTensorView(data.d_final_state).slice(0, static_cast<std::int64_t>(n), 1),
           .output = output,
           .denominator = sums ? ConstTensorView(denominator) : ConstTensorView()},
          {.key = d_key});
      expect_same_bits({output, d_key}, {Tensor::copy_of(packed.output.view.slice(2, begin, count)),
                                         Tensor::copy_of(packed.gradients.key.view.slice(2, begin, count))});
    }
  }
}

// Kernels of additive writes may make features and sums of keys themselves, so some calls have delta writes.
// Copies of 2 x 8 heads of 64 are made by pieces of 64 to 256 tokens. Where a list says which tokens are
// present, even if all are, they are made at once.
TEST_P(RecurrenceIdentities, CopiesByPiecesGiveTheBitsOfCopiesAtOnce) {
  if (GetParam().ends_with("step") || GetParam() == "reference") GTEST_SKIP() << "goes on one by one";
  struct Call {
    RecurrenceSpec spec;
    DType dtype;
    std::int64_t query_heads;
  };
  const Call calls[] = {
      {{.feature_map = EluPlusOne{}, .write = DeltaWrite{}, .normalizer = KeySum{}}, DType::f32, 8},
      {{.feature_map = EluPlusOne{}, .write = DeltaWrite{}, .normalizer = KeySum{}}, DType::f64, 16},
      {{.feature_map = EluPlusOne{}, .decay = ScalarDecay{}}, DType::bf16, 8},
      {{.decay = KeyDecay{}, .write = DeltaWrite{}, .normalizer = KeySum{}}, DType::f16, 16}};
  for (const auto& [spec, dtype, query_heads] : calls) {
    if (!runs(GetParam(), dtype)) continue;
    RecurrenceCase c{.spec = spec, .dtype = dtype};
    c.shape = {.batch = 2,
               .num_query_heads = query_heads,
               .num_key_heads = 8,
               .num_heads = 8,
               .len = 1100,
               .key_dim = 64};
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(spec, c.plan_shape(), {.dtype = dtype, .kernel = GetParam()});
    enum class State { none, of_its_own, in_place };
    const auto run = [&](bool at_once, State wanted) {
      const std::vector<std::uint8_t> present(static_cast<std::size_t>(c.entries() * c.len()), 1);
      RecurrenceInputs in = data.views();
      if (at_once) in.present = present;
      const Tensor output = unwritten(dtype, {2, query_heads, 1100, 64}),
                   state = wanted == State::in_place ? Tensor::copy_of(data.inputs.initial_state.view)
                                                     : unwritten_like(data.d_final_state),
                   saved = unwritten(c.wide_dtype(), {saved_states_size(plan, in)});
      RecurrenceOutputs outputs{.output = output, .saved_states = saved};
      if (wanted == State::in_place) in.initial_state = state;
      if (wanted != State::none) outputs.final_state = state;
      UnwrittenWorkspace workspace(workspace_bytes(plan, threads_of(nullptr)));
      recur(plan, in, outputs, {.workspace = workspace.bytes()});
      std::vector<Tensor> all{output, saved};
      if (wanted != State::none) all.push_back(state);
      return all;
    };
    for (const State wanted : {State::none, State::of_its_own, State::in_place})
      expect_same_bits(run(false, wanted), run(true, wanted));
  }
}

// The same numbers, as `dtype` stores them.
Tensor stored_as(DType dtype, const Tensor& x) {
  Tensor stored(dtype, x.shape());
  for (std::int64_t i = 0; i < x.count(); ++i) set_element(stored, i, element(x, i));
  return stored;
}

// Kernels compute both in f32, so that results differ by their rounding alone.
TEST_P(RecurrenceIdentities, RowsOf16BitsGiveTheRoundedBitsOfTheSameNumbersInF32) {
  if (!runs(GetParam(), DType::f32)) GTEST_SKIP() << "it rounds operands of products to bf16";
  for (const RecurrenceSpec& spec : specs()) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const Packing packing : {Packing::padded, Packing::packed_and_masked}) {
        for (const Placed placed : {Placed::contiguous, Placed::heads_inside}) {
          RecurrenceCase c = case_of(spec);
          c.dtype = dtype;
          c.packing = packing;
          c.placed = placed;
          c.shape.num_query_heads = 4;
          c.shape.num_key_heads = 1;
          c.shape.value_dim = 130;  // of several tiles, which widen 64 elements at a time
          RecurrenceCase wide = c;
          wide.dtype = DType::f32;
          RecurrenceData data(c), wide_data(wide);
          const auto narrow = data.inputs.all(), widened = wide_data.inputs.all();
          for (std::size_t n = 0; n < narrow.size(); ++n) {
            const Tensor &from = narrow[n].second->storage, &to = widened[n].second->storage;
            for (std::int64_t i = 0; from && i < from.count(); ++i) set_element(to, i, element(from, i));
          }
          for (std::int64_t i = 0; i < data.d_output.storage.count(); ++i)
            set_element(wide_data.d_output.storage, i, element(data.d_output.storage, i));
          const auto plan_of = [&](const RecurrenceCase& of) {
            return make_recurrence_plan(spec, of.plan_shape(), {.dtype = of.dtype, .kernel = GetParam()});
          };
          RecurrenceRun run, wide_run;
          run_forward(plan_of(c), c, data, run);
          run_forward(plan_of(wide), wide, wide_data, wide_run);
          expect_same_bits({run.output.values(), run.final_state},
                           {stored_as(dtype, wide_run.output.values()), wide_run.final_state});
          // A sum of keys is divided by, and its derivative reads the output.
          for (std::int64_t i = 0; i < run.output.storage.count(); ++i)
            set_element(wide_run.output.storage, i, element(run.output.storage, i));
          run_backward(plan_of(c), c, data, data.d_output.view, run);
          run_backward(plan_of(wide), wide, wide_data, wide_data.d_output.view, wide_run);
          const auto all = run.all(), wide_all = wide_run.all();
          for (std::size_t n = 0; n < all.size(); ++n) {
            SCOPED_TRACE(all[n].first + ", " + c.name + ", " + std::string(to_string(dtype)));
            expect_same_bits({all[n].second}, {stored_as(all[n].second.dtype(), wide_all[n].second)});
          }
        }
      }
    }
  }
}

TEST_P(RecurrenceIdentities, PaddingGivesTheBitsOfAShorterSequence) {
  for (const RecurrenceSpec& spec : specs()) {
    RecurrenceCase c = case_of(spec);
    c.shape.batch = 1;
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    const std::int64_t padding = 20, count = c.shape.len - padding;
    std::vector<std::uint8_t> present(static_cast<std::size_t>(c.shape.len), 1);
    std::fill(present.begin(), present.begin() + padding, std::uint8_t{0});  // on the left
    const Tensor padded = unwritten(c.dtype, {1, 2, c.shape.len, c.shape.value_dim}),
                 alone = unwritten(c.dtype, {1, 2, count, c.shape.value_dim});
    RecurrenceInputs in = data.views();
    in.present = present;
    recur(plan, in, {.output = padded});
    recur(plan, tokens_of(data, padding, count), {.output = alone});
    expect_same_bits({Tensor::copy_of(padded.view().slice(2, padding, count))}, {alone});
    const Tensor none = Tensor::copy_of(padded.view().slice(2, 0, padding));
    EXPECT_EQ(inner_product(none, none), 0);
  }
}

TEST_P(RecurrenceIdentities, EveryThreadCountGivesTheSameBits) {
  for (const RecurrenceSpec& spec : specs()) {
    RecurrenceCase c = case_of(spec);
    c.shape.num_key_heads = c.shape.num_query_heads = 1;  // so that heads share gradients
    const RecurrenceData data(c);
    expect_same_bits_for_every_thread_count([&](Executor& executor) {
      std::vector<Tensor> results;
      for (const auto& [name, tensor] : run_case(c, data, GetParam(), &executor).all())
        results.push_back(tensor);
      return results;
    });
  }
}

// Each unit on a worker, and so in memory, of its own.
class WorkerAUnit final : public Executor {
 public:
  int thread_count() const noexcept override { return 8; }
  void parallel_for(std::int64_t count, ParallelBody body) override {
    for (std::int64_t i = 0; i < count; ++i) body(i, static_cast<int>(i % 8));
  }
};

// Two tiles of value columns, 97 and 96: their rows have other widths.
TEST_P(RecurrenceIdentities, UnitsReadNoMemoryOfOthers) {
  for (const RecurrenceSpec& spec : specs()) {
    RecurrenceCase c = case_of(spec);
    c.shape.value_dim = 193;
    const RecurrenceData data(c);
    WorkerAUnit executor;
    const auto own = run_case(c, data, GetParam(), &executor).all(),
               shared = run_case(c, data, GetParam(), &serial_executor()).all();
    for (std::size_t n = 0; n < own.size(); ++n) {
      SCOPED_TRACE(c.name + " " + own[n].first);
      expect_same_bits({own[n].second}, {shared[n].second});
    }
  }
}

TEST_P(RecurrenceIdentities, ALossOfTheFinalStateAloneHasTheGradientsOfADOutputOf0) {
  for (const RecurrenceSpec& spec : specs()) {
    const RecurrenceCase c = case_of(spec);
    const RecurrenceData data(c);
    const RecurrencePlan plan =
        make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
    RecurrenceRun alone, beside;
    run_forward(plan, c, data, alone);
    run_forward(plan, c, data, beside);
    const Tensor zeros = Tensor::zeros(c.dtype, data.d_output.view.shape());
    run_backward(plan, c, data, {}, alone);
    run_backward(plan, c, data, zeros, beside);
    const auto got = alone.all(), want = beside.all();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t n = 0; n < got.size(); ++n)
      expect_near(got[n].second, want[n].second, tolerance_of(c), c.name + " " + got[n].first);
  }
}

// Keys of unit length.
void normalize_keys(const RecurrenceData& data, std::int64_t dim) {
  const Tensor& keys = data.inputs.key.storage;
  for (std::int64_t row = 0; row < keys.count() / dim; ++row) {
    double sum = 0;
    for (std::int64_t i = row * dim; i < (row + 1) * dim; ++i) sum += element(keys, i) * element(keys, i);
    for (std::int64_t i = row * dim; i < (row + 1) * dim; ++i)
      set_element(keys, i, element(keys, i) / std::sqrt(sum));
  }
}

TEST_P(RecurrenceIdentities, AfterADeltaWriteOfBeta1TheStateHoldsTheValueUnderTheKey) {
  RecurrenceCase c = case_of({.decay = ScalarDecay{}, .write = DeltaWrite{}, .scale = 1.0});
  const RecurrenceData data(c);
  normalize_keys(data, c.shape.key_dim);
  Tensor(data.inputs.beta.storage).fill(1);
  RecurrenceInputs in = data.views();
  in.query = in.key;
  const Tensor output = unwritten(c.dtype, data.inputs.value.view.shape());
  recur(make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()}), in,
        {.output = output});
  expect_near(output, data.inputs.value.storage, tolerance_of(c), "read under the key");
}

TEST_P(RecurrenceIdentities, WithOrthonormalKeysADeltaWriteIsAnAdditiveOne) {
  RecurrenceCase c = case_of({.write = DeltaWrite{}}, 24);
  c.has_state = false;
  const RecurrenceData data(c);
  Tensor(data.inputs.key.storage).fill(0);
  for (std::int64_t row = 0; row < 4 * 24; ++row)
    set_element(data.inputs.key.storage, row * 24 + (row * 7) % 24, 1);
  Tensor(data.inputs.beta.storage).fill(1);
  const Tensor delta = outputs_of(c, data, GetParam());
  RecurrenceInputs in = data.views();
  in.beta = {};
  const Tensor additive = unwritten(c.dtype, delta.shape());
  recur(make_recurrence_plan({}, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()}), in,
        {.output = additive});
  expect_near(delta, additive, tolerance_of(c), "output");
}

// b p^T with a = -α∘k, b = βk and the value βv is the delta rule's erasure.
TEST_P(RecurrenceIdentities, ALowRankWriteMayBeADeltaWrite) {
  RecurrenceCase c = case_of({.decay = KeyDecay{}, .write = DeltaWrite{}});
  const RecurrenceData data(c);
  const Tensor delta = outputs_of(c, data, GetParam());
  const auto& given = data.inputs;
  const Tensor a = given.key.storage.clone(), b = a.clone(), value = given.value.storage.clone();
  for (std::int64_t i = 0; i < a.count(); ++i) {
    const double key = element(a, i), beta = element(given.beta.storage, i / c.shape.key_dim);
    set_element(a, i, -std::exp(element(given.log_decay.storage, i)) * key);
    set_element(b, i, beta * key);
  }
  for (std::int64_t i = 0; i < value.count(); ++i)
    set_element(value, i, element(value, i) * element(given.beta.storage, i / c.shape.value_dim));
  RecurrenceInputs in = data.views();
  in.beta = {};
  in.a = a;
  in.b = b;
  in.value = value;
  const Tensor low_rank = unwritten(c.dtype, delta.shape());
  const RecurrenceSpec spec{.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}};
  recur(make_recurrence_plan(spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()}), in,
        {.output = low_rank});
  expect_near(low_rank, delta, tolerance_of(c), "output");
}

TEST_P(RecurrenceIdentities, EqualGatesOfAllChannelsAreAScalarGate) {
  for (const Write& write : {Write(AdditiveWrite{}), Write(DeltaWrite{})}) {
    RecurrenceCase c = case_of({.decay = ScalarDecay{}, .write = write});
    const RecurrenceData data(c);
    const Tensor scalar = outputs_of(c, data, GetParam());
    const Tensor gates(DType::f32, {2, 2, c.shape.len, c.shape.key_dim});
    for (std::int64_t i = 0; i < gates.count(); ++i)
      set_element(gates, i, element(data.inputs.log_decay.storage, i / c.shape.key_dim));
    RecurrenceInputs in = data.views();
    in.log_decay = gates;
    const Tensor channels = unwritten(c.dtype, scalar.shape());
    recur(make_recurrence_plan({.decay = KeyDecay{}, .write = write}, c.plan_shape(),
                               {.dtype = c.dtype, .kernel = GetParam()}),
          in, {.output = channels});
    expect_near(channels, scalar, tolerance_of(c), "output");
  }
}

// A gate of -infinity forgets everything: what follows is a sequence of its own.
TEST_P(RecurrenceIdentities, AGateOfMinusInfinityStartsAnew) {
  for (const RecurrenceSpec& spec :
       {RecurrenceSpec{.decay = ScalarDecay{}}, RecurrenceSpec{.decay = KeyDecay{}, .write = DeltaWrite{}}}) {
    const RecurrenceCase c = case_of(spec);
    const RecurrenceData data(c);
    const std::int64_t at = 21, count = c.shape.len - at;
    const TensorView gates = data.inputs.log_decay.written.slice(2, at, 1);
    for (std::int64_t i = 0; i < gates.count(); ++i) {
      const std::int64_t dim = gates.rank() == 4 ? gates.size(3) : 1;
      gates.data<float>()[i / dim * gates.stride(1) + i % dim] = -std::numeric_limits<float>::infinity();
    }
    const Tensor whole = outputs_of(c, data, GetParam());
    RecurrenceInputs in = tokens_of(data, at, count);
    in.initial_state = {};
    const Tensor anew = unwritten(c.dtype, {2, 2, count, c.shape.value_dim});
    recur(make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()}), in,
          {.output = anew});
    expect_near(Tensor::copy_of(whole.view().slice(2, at, count)), anew, tolerance_of(c), c.name);
  }
}

}  // namespace
}  // namespace fovea::testing
