// Merging: parts of the keys make the whole, forward and backward.
#include "fovea/plan/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "plan/differences.h"

namespace fovea::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Part {
  Tensor output, log_sum_exp;
  AttentionPart view() const { return {output, log_sum_exp}; }
};

Part unwritten_part(DType dtype, const Shape& shape) {
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  return {unwritten(dtype, shape), unwritten(wide, {shape[0], shape[1], shape[2]})};
}

Part merged(const std::vector<Part>& parts, Executor* executor = nullptr) {
  Part whole = unwritten_part(parts[0].output.dtype(), parts[0].output.shape());
  std::vector<AttentionPart> views;
  for (const Part& part : parts) views.push_back(part.view());
  merge_attention(views, whole.output, whole.log_sum_exp, {.executor = executor});
  return whole;
}

// Causal attention with a slope and a bias over keys [0, K), in one call or split at `ends`.
struct Sequence {
  static constexpr std::int64_t B = 2, H = 4, Hkv = 2, Q = 70, K = 150, D = 8, Dv = 200;
  DType dtype;
  std::string kernel;
  DType wide;
  Tensor query, key, value, d_output, slope, bias;

  explicit Sequence(DType type, std::string name = "")
      : dtype(type), kernel(std::move(name)), wide(type == DType::f64 ? DType::f64 : DType::f32) {
    query = random_tensor(dtype, {B, H, Q, D}, 1);
    key = random_tensor(dtype, {B, Hkv, K, D}, 2);
    value = random_tensor(dtype, {B, Hkv, K, Dv}, 3);
    d_output = random_tensor(dtype, {B, H, Q, Dv}, 4);
    slope = random_tensor(wide, {1, H, 1, 1}, 5);
    bias = random_tensor(wide, {1, 1, 1, K}, 6);
  }
  AttentionPlan plan() const {
    return make_plan({.mods = {AlibiBias{}, DenseBias{}}, .mask = Causal{}},
                     {.batch = B,
                      .num_query_heads = H,
                      .num_kv_heads = Hkv,
                      .query_len = Q,
                      .key_len = K,
                      .head_dim = D,
                      .value_dim = Dv},
                     {.dtype = dtype, .kernel = kernel});
  }
  // Calls f(inputs) for the keys [begin, end).
  template <class F>
  void with_keys(std::int64_t begin, std::int64_t end, F&& f) const {
    const ConstTensorView all_keys = key, all_values = value, all_biases = bias;
    AttentionInputs in{.query = query,
                       .key = all_keys.slice(2, begin, end - begin),
                       .value = all_values.slice(2, begin, end - begin)};
    in.arguments = {{"mods[0].slope", slope}, {"mods[1].bias", all_biases.slice(3, begin, end - begin)}};
    in.query_offset = K - Q - begin;
    f(in);
  }
  Part part(std::int64_t begin, std::int64_t end) const {
    Part result = unwritten_part(dtype, {B, H, Q, Dv});
    with_keys(begin, end, [&](const AttentionInputs& in) {
      attend(plan(), in, {.output = result.output, .log_sum_exp = result.log_sum_exp});
    });
    return result;
  }
};

// eps of the type times 16 · the 150 keys of a row, as in the case table. 16-bit outputs are rounded before
// they are merged and after.
double tolerance_of(DType dtype) {
  return dtype == DType::f64 ? 5e-13 : dtype == DType::f32 ? 3e-4 : dtype == DType::f16 ? 2e-3 : 2e-2;
}

TEST(Merge, PartsMakeTheWhole) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Sequence s(dtype);
    const Part whole = s.part(0, 150);
    // The last part is hidden from many rows, which give 0 and -inf.
    const Part parts = merged({s.part(0, 3), s.part(3, 64), s.part(64, 140), s.part(140, 150)});
    expect_near(parts.output, whole.output, tolerance_of(dtype), std::string(to_string(dtype)) + " output");
    expect_near(parts.log_sum_exp, whole.log_sum_exp, tolerance_of(s.wide),
                std::string(to_string(dtype)) + " log_sum_exp");
  }
}

TEST(Merge, IsAssociativeAndCommutative) {
  const Sequence s(DType::f64);
  const Part a = s.part(0, 20), b = s.part(20, 90), c = s.part(90, 150);
  const Part whole = merged({a, b, c});
  for (const Part& other : {merged({merged({a, b}), c}), merged({a, merged({b, c})}), merged({c, a, b})}) {
    expect_near(other.output, whole.output, 4e-15, "output");
    expect_near(other.log_sum_exp, whole.log_sum_exp, 1e-14, "log_sum_exp");
  }
}

TEST(Merge, TheIdentity) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Sequence s(dtype);
    const Part a = s.part(0, 150);
    Part nothing = unwritten_part(dtype, a.output.shape());
    nothing.log_sum_exp.fill(-infinity);  // its output is NaN and must not be read
    for (const Part& same : {merged({a}), merged({a, nothing}), merged({nothing, nothing, a})})
      expect_same_bits({same.output, same.log_sum_exp}, {a.output, a.log_sum_exp});
    Part none = unwritten_part(dtype, a.output.shape());
    merge_attention({}, none.output, none.log_sum_exp);
    for (const Part& zero : {none, merged({nothing, nothing})}) {
      expect_near(zero.output, Tensor::zeros(dtype, a.output.shape()), 0.0, "output");
      expect_near(zero.log_sum_exp, nothing.log_sum_exp, 0.0, "log_sum_exp");
    }
  }
}

TEST(Merge, ExtremeLogSumExps) {
  Part low{Tensor(DType::f32, {1, 1, 1, 1}), Tensor(DType::f32, {1, 1, 1})},
      high{low.output.clone(), low.log_sum_exp.clone()};
  low.output.fill(1.0);
  high.output.fill(3.0);
  for (const double at : {-5000.0, 0.0, 5000.0}) {
    low.log_sum_exp.fill(at);
    high.log_sum_exp.fill(at);
    const Part both = merged({low, high});
    EXPECT_EQ(element(both.output, 0), 2.0) << at;
    EXPECT_NEAR(element(both.log_sum_exp, 0), at + std::log(2.0), 5e-4) << at;
    high.log_sum_exp.fill(at + 1000);
    EXPECT_EQ(element(merged({low, high}).output, 0), 3.0) << at;
  }
}

TEST(Merge, NaNStays) {
  const Sequence s(DType::f32);
  const Part a = s.part(0, 60), b = s.part(60, 150), clean = merged({a, b});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // Row 3 has a NaN log-sum-exp, row 5 a NaN in element 7. Row 4 of the other part sees nothing.
  set_element(a.log_sum_exp, 3, nan);
  set_element(a.log_sum_exp, 4, nan);
  set_element(b.log_sum_exp, 4, -infinity);
  set_element(a.output, 5 * Sequence::Dv + 7, nan);
  for (const Part& got : {merged({a, b}), merged({b, a})}) {
    for (std::int64_t row = 0; row < got.log_sum_exp.count(); ++row) {
      const bool whole_row = row == 3 || row == 4;
      EXPECT_EQ(std::isnan(element(got.log_sum_exp, row)), whole_row) << row;
      for (std::int64_t d = 0; d < Sequence::Dv; ++d)
        ASSERT_EQ(std::isnan(element(got.output, row * Sequence::Dv + d)), whole_row || (row == 5 && d == 7))
            << row << " " << d;
    }
    EXPECT_NEAR(element(got.output, 6 * Sequence::Dv), element(clean.output, 6 * Sequence::Dv), 1e-5);
  }
}

// A running result that takes one part after the other equals a result with other strides.
TEST(Merge, IntoOneOfThePartsAndIntoStrides) {
  const Sequence s(DType::f32);
  const Part a = s.part(0, 60), b = s.part(60, 150), want = merged({a, b});
  const Part running{a.output.clone(), a.log_sum_exp.clone()};
  const AttentionPart both[] = {running.view(), b.view()};
  merge_attention(both, running.output, running.log_sum_exp);
  expect_same_bits({running.output, running.log_sum_exp}, {want.output, want.log_sum_exp});

  const Tensor wider = unwritten(DType::f32, {2, 4, 70, Sequence::Dv + 3});
  const TensorView view = wider.view().slice(3, 0, Sequence::Dv);
  const AttentionPart parts[] = {a.view(), b.view()};
  merge_attention(parts, view, {});
  expect_same_bits({Tensor::copy_of(view)}, {want.output});
  for (std::int64_t row = 0; row < 2 * 4 * 70; ++row)
    ASSERT_TRUE(std::isnan(element(wider, row * (Sequence::Dv + 3) + Sequence::Dv)));
}

TEST(Merge, SameBitsForEveryThreadCount) {
  const Sequence s(DType::bf16);
  const Part a = s.part(0, 60), b = s.part(60, 150);
  expect_same_bits_for_every_thread_count([&](Executor& executor) {
    const Part whole = merged({a, b}, &executor);
    return std::vector<Tensor>{whole.output, whole.log_sum_exp};
  });
}

struct Gradients {
  Tensor query, key, value, slope, bias;
};

// Gradients of the call over keys [begin, end), with output and log_sum_exp of the whole.
Gradients backward(const Sequence& s, std::int64_t begin, std::int64_t end, const Part& whole) {
  const std::int64_t keys = end - begin;
  Gradients g{unwritten_like(s.query), unwritten(s.dtype, {Sequence::B, Sequence::Hkv, keys, Sequence::D}),
              unwritten(s.dtype, {Sequence::B, Sequence::Hkv, keys, Sequence::Dv}), unwritten_like(s.slope),
              unwritten(s.wide, {1, 1, 1, keys})};
  AttentionGradients wanted{.query = g.query, .key = g.key, .value = g.value};
  wanted.arguments = {{"mods[0].slope", g.slope}, {"mods[1].bias", g.bias}};
  s.with_keys(begin, end, [&](const AttentionInputs& in) {
    attend_backward(s.plan(), in, whole.output, whole.log_sum_exp, s.d_output, wanted);
  });
  return g;
}

void add(const Tensor& to, const Tensor& from) {
  for (std::int64_t i = 0; i < to.count(); ++i) set_element(to, i, element(to, i) + element(from, i));
}

// Backward with the merged output and log-sum-exp. The parts' d_query and gradients of shared arguments add
// up; each part has its own d_key and d_value.
void expect_gradients_of_the_whole(const Sequence& s, double tolerance) {
  const std::int64_t ends[] = {0, 37, 100, 150};
  const Part whole = merged({s.part(0, 37), s.part(37, 100), s.part(100, 150)});
  const Gradients want = backward(s, 0, 150, s.part(0, 150));
  const Tensor d_query = Tensor::zeros(s.dtype, s.query.shape()),
               d_slope = Tensor::zeros(s.wide, s.slope.shape());
  for (int n = 0; n < 3; ++n) {
    const std::int64_t begin = ends[n], keys = ends[n + 1] - begin;
    const Gradients part = backward(s, begin, begin + keys, whole);
    add(d_query, part.query);
    add(d_slope, part.slope);
    const auto own = [&](const Tensor& all, int axis) {
      return Tensor::copy_of(ConstTensorView(all).slice(axis, begin, keys));
    };
    expect_near(part.key, own(want.key, 2), tolerance, "d_key");
    expect_near(part.value, own(want.value, 2), tolerance, "d_value");
    expect_near(part.bias, own(want.bias, 3), tolerance, "d_bias");
  }
  expect_near(d_query, want.query, tolerance, "d_query");
  expect_near(d_slope, want.slope, 100 * tolerance, "d_slope");  // it is multiplied by distances up to 150
}

TEST(Merge, GradientsOfThePartsMakeTheGradientsOfTheWhole) {
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available || info.isa == "reference")
      continue;  // the reference recomputes the weights from
                 // its own keys
    expect_gradients_of_the_whole(Sequence(DType::f64, info.isa), 1e-12);
    expect_gradients_of_the_whole(Sequence(DType::f32, info.isa), 1e-3);
  }
}

// The sink is applied once, after the merge.
TEST(Merge, ASinkEntersOnce) {
  const Tensor q = random_tensor(DType::f64, {1, 2, 5, 4}, 1), k = random_tensor(DType::f64, {1, 2, 9, 4}, 2),
               sink = random_tensor(DType::f64, {2}, 3);
  const AttentionShape shape{
      .num_query_heads = 2, .num_kv_heads = 2, .query_len = 5, .key_len = 9, .head_dim = 4, .value_dim = 4};
  const auto part = [&](std::int64_t begin, std::int64_t keys) {
    const Part result = unwritten_part(DType::f64, q.shape());
    const ConstTensorView some = ConstTensorView(k).slice(2, begin, keys);
    attend(make_plan({}, shape, {.dtype = DType::f64}), {.query = q, .key = some, .value = some},
           {.output = result.output, .log_sum_exp = result.log_sum_exp});
    return result;
  };
  const Part whole = merged({part(0, 4), part(4, 5)});
  const Part want = unwritten_part(DType::f64, q.shape());
  AttentionInputs in{.query = q, .key = k, .value = k};
  in.arguments.set("normalizer.sink", sink);
  attend(make_plan({.normalizer = SoftmaxWithSink{}}, shape, {.dtype = DType::f64}), in,
         {.output = want.output, .log_sum_exp = want.log_sum_exp});
  expect_near(whole.log_sum_exp, want.log_sum_exp, 1e-14, "log_sum_exp");
  for (std::int64_t i = 0; i < whole.output.count(); ++i) {
    const double lse = element(whole.log_sum_exp, i / 4);
    EXPECT_NEAR(element(whole.output, i) / (1 + std::exp(element(sink, i / 20) - lse)),
                element(want.output, i), 1e-14);
  }
}

TEST(Merge, RefusesInvalidArguments) {
  const Part a = unwritten_part(DType::f32, {1, 2, 3, 4}), to = unwritten_part(DType::f32, {1, 2, 3, 4});
  const auto merge = [](const AttentionPart& part, const TensorView& output, const TensorView& lse) {
    return [=] { merge_attention({&part, 1}, output, lse); };
  };
  const char* name = "merge_attention";
  const Tensor wide(DType::f64, {1, 2, 3, 4}), wide_rows(DType::f64, {1, 2, 3}), three(DType::f32, {1, 2, 3});
  EXPECT_NO_THROW(merge(a.view(), to.output, to.log_sum_exp)());
  expect_refused(merge({wide, a.log_sum_exp}, to.output, {}), name, "parts[0].output");
  expect_refused(merge({{}, a.log_sum_exp}, to.output, {}), name, "parts[0].output");
  expect_refused(merge({a.output, wide_rows}, to.output, {}), name, "parts[0].log_sum_exp");
  expect_refused(merge(a.view(), three, {}), name, "output");
  expect_refused(merge(a.view(), to.output, wide_rows), name, "log_sum_exp");
  // With rows shifted by one, a row would be read after it is written.
  const Tensor longer(DType::f32, {1, 1, 4, 4});
  const TensorView rows = longer.view().slice(2, 0, 3), shifted = longer.view().slice(2, 1, 3);
  const Tensor lse(DType::f32, {1, 1, 3});
  expect_refused(merge({rows, lse}, shifted, {}), name, "output");
}

}  // namespace
}  // namespace fovea::testing
