// Layouts and sizes that a caller may use: strided operands, shared parameters, smaller calls, empty ones,
// long masks.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "fovea/core/executor.h"
#include "plan/case_table.h"
#include "plan/rows.h"

namespace fovea::testing {
namespace {

void expect_same(const Tensor& a, const Tensor& b, const std::string& name) {
  ASSERT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << name;
}

TEST(Layout, EveryLayoutGivesTheSameBits) {
  for (const char* kernel : {"", "reference"}) {
    for (Case c : case_table()) {
      if (!has_kernel(c, c.dtype, kernel)) continue;
      const Operands o(c, c.dtype);
      c.layout = Layout::contiguous;
      const auto want = run_case(c, o, c.dtype, kernel).all();
      for (const Layout layout : {Layout::heads_inside, Layout::packed, Layout::reversed}) {
        c.layout = layout;
        const auto got = run_case(c, o, c.dtype, kernel).all();
        for (std::size_t n = 0; n < want.size(); ++n) {
          if (want[n].second) expect_same(got[n].second, want[n].second, c.name + ": " + want[n].first);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

// All batch entries read the keys and values of one entry through a stride of 0. Outputs and gradients are
// those of copies.
TEST(Layout, OneEntrySeenByTheWholeBatch) {
  const AttentionShape shape{.batch = 3,
                             .num_query_heads = 2,
                             .num_kv_heads = 2,
                             .query_len = 50,
                             .key_len = 130,
                             .head_dim = 8,
                             .value_dim = 8};
  const Case c{.name = "one entry", .spec = {.mask = Causal{}}, .shape = shape};
  Operands o(c, DType::f32);
  const std::size_t entry = o.key.bytes() / 3;
  for (const Tensor& t : {o.key, o.value}) {
    for (std::size_t b : {1, 2}) std::memcpy(t.raw() + b * entry, t.raw(), entry);
  }
  const std::int64_t strides[] = {0, 130 * 8, 8, 1};
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    const Results want = run_case(c, o, DType::f32, info.isa);
    const AttentionPlan plan = make_plan(c.spec, shape, {.precision = Precision::higher, .kernel = info.isa});
    AttentionInputs in = o.inputs(c);
    in.key = ConstTensorView(o.key.raw(), DType::f32, o.key.shape(), strides);
    in.value = ConstTensorView(o.value.raw(), DType::f32, o.value.shape(), strides);
    const Tensor output(DType::f32, o.query.shape()), lse(DType::f32, {3, 2, 50}),
        d_query(DType::f32, o.query.shape()), d_key(DType::f32, o.key.shape()),
        d_value(DType::f32, o.value.shape());
    attend(plan, in, {.output = output, .log_sum_exp = lse});
    attend_backward(plan, in, output, lse, o.d_output, {.query = d_query, .key = d_key, .value = d_value});
    expect_same(output, want.output, "output");
    expect_same(d_query, want.d_query, "d_query");
    expect_same(d_key, want.d_key, "d_key");
    expect_same(d_value, want.d_value, "d_value");
  }
}

// All heads read one bilinear W through a stride of 0. The output is that of a shared W; the gradients, one a
// head, add up to that of the shared W.
TEST(Layout, OneParameterSeenByEveryHead) {
  const AttentionShape shape{
      .num_query_heads = 3, .num_kv_heads = 3, .query_len = 9, .key_len = 20, .head_dim = 8, .value_dim = 8};
  Case c{.name = "shared", .spec = {.score = Bilinear{}}, .shape = shape};
  const Operands o(c, DType::f64);
  const AttentionPlan plan = make_plan(c.spec, shape, {.dtype = DType::f64});
  const Tensor shared = random_tensor(DType::f64, {8, 8}, 5);
  const std::int64_t strides[] = {0, 8, 1};
  struct Run {
    Tensor output, d_query, dW;
  };
  const auto run = [&](const ConstTensorView& W, const Shape& gradient) {
    Run r{Tensor(DType::f64, o.d_output.shape()), Tensor(DType::f64, o.query.shape()),
          Tensor(DType::f64, gradient)};
    r.dW.fill(std::numeric_limits<double>::quiet_NaN());
    Tensor lse(DType::f64, {1, 3, 9});
    AttentionInputs in = o.inputs(c);
    in.arguments.set("score.W", W);
    attend(plan, in, {.output = r.output, .log_sum_exp = lse});
    AttentionGradients g{.query = r.d_query};
    g.arguments = {{"score.W", r.dW}};
    attend_backward(plan, in, r.output, lse, o.d_output, g);
    return r;
  };
  const Run one = run(shared, {8, 8}),
            each = run(ConstTensorView(shared.raw(), DType::f64, {3, 8, 8}, strides), {3, 8, 8});
  expect_same(each.output, one.output, "output");
  expect_same(each.d_query, one.d_query, "d_query");
  for (std::int64_t i = 0; i < 64; ++i) {
    double sum = 0.0;
    for (std::int64_t h = 0; h < 3; ++h) sum += element(each.dW, h * 64 + i);
    EXPECT_NEAR(sum, element(one.dW, i), 1e-12);
  }
}

// The workspace promised for the plan's shape is enough for every smaller call.
TEST(Layout, PromisedWorkspaceServesSmallerCalls) {
  for (const char* kernel : {"", "reference"}) {
    for (const Case& c : case_table()) {
      const AttentionPlan plan =
          make_plan(c.spec, c.shape, {.precision = Precision::higher, .kernel = kernel});
      const auto pool = make_thread_pool(3);
      std::vector<std::byte> forward(workspace_bytes(plan, 3) + 63),
          backward(backward_workspace_bytes(plan, 3, c.loss_of()) + 63);
      for (const std::int64_t queries : {std::int64_t{1}, c.shape.query_len / 2, c.shape.query_len}) {
        for (const std::int64_t keys : {std::int64_t{1}, c.shape.key_len / 2, c.shape.key_len}) {
          if (queries > c.shape.query_len || keys > c.shape.key_len) continue;
          const Case smaller = c.with_lengths(queries, keys);
          const Operands o(smaller, DType::f32);
          Tensor out(DType::f32, o.d_output.shape()),
              lse(DType::f32, {c.shape.batch, c.shape.num_query_heads, queries}),
              d_query(DType::f32, o.query.shape()), d_value(DType::f32, o.value.shape());
          ASSERT_NO_THROW(
              attend(plan, o.inputs(smaller), {.output = out, .log_sum_exp = lse}, {pool.get(), forward}))
              << c.name << " " << queries << " " << keys;
          const AttentionGradients g =
              c.score_gradients ? AttentionGradients{.query = d_query} : AttentionGradients{.value = d_value};
          ASSERT_NO_THROW(
              attend_backward(plan, o.inputs(smaller), o.loss(smaller, out, lse), g, {pool.get(), backward}))
              << c.name << " " << queries << " " << keys;
        }
      }
    }
  }
}

// Many groups of keys. The byte count cannot know yet whether a dense gradient will be shared. Nothing may be
// written behind the promised bytes.
TEST(Layout, NothingBehindTheWorkspace) {
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const std::int64_t batch : {1, 2}) {
      for (const std::int64_t kv_heads : {1, 3}) {
        for (const bool shared : {true, false}) {
          Case c{.name = "dense", .spec = {.mods = {DenseBias{}}}, .shape = {}};
          c.shape = {.batch = batch,
                     .num_query_heads = kv_heads,
                     .num_kv_heads = kv_heads,
                     .query_len = 6,
                     .key_len = 1500,
                     .head_dim = 32,
                     .value_dim = 32};
          c.mod_arguments = {shared ? Shape{1, 1, 6, 1500} : Shape{batch, kv_heads, 6, 1500}};
          const Operands o(c, DType::f32);
          const AttentionPlan plan =
              make_plan(c.spec, c.shape, {.precision = Precision::higher, .kernel = info.isa});
          for (const int threads : {1, 3}) {
            const auto pool = make_thread_pool(threads);
            const std::size_t bytes =
                std::max(workspace_bytes(plan, threads), backward_workspace_bytes(plan, threads)) + 63;
            std::vector<std::byte> memory(bytes + (1 << 20), std::byte{0x5a});
            const CallResources resources{pool.get(), std::span(memory).first(bytes)};
            Tensor out(DType::f32, o.query.shape()), lse(DType::f32, {batch, kv_heads, 6}),
                dq(DType::f32, o.query.shape()), dk(DType::f32, o.key.shape()), dv(DType::f32, o.key.shape()),
                db(DType::f32, c.mod_arguments[0]);
            AttentionGradients g{.query = dq, .key = dk, .value = dv};
            g.arguments = {{"mods[0].bias", db}};
            attend(plan, o.inputs(c), {.output = out, .log_sum_exp = lse}, resources);
            attend_backward(plan, o.inputs(c), out, lse, o.d_output, g, resources);
            for (std::size_t i = bytes; i < memory.size(); ++i)
              ASSERT_EQ(memory[i], std::byte{0x5a})
                  << info.isa << " byte " << i - bytes << " behind " << bytes;
          }
        }
      }
    }
  }
}

// Also for sizes outside the case table: a smaller batch has more groups of keys a head.
TEST(Layout, WorkspacesGrowWithTheShape) {
  PhiloxStream random(9);
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (int trial = 0; trial < 3000; ++trial) {
      AttentionShape large, small;
      const auto size = [&](std::int64_t most, std::int64_t& a, std::int64_t& b) {
        a = 1 + random.next_below(static_cast<std::uint32_t>(most));
        b = 1 + random.next_below(static_cast<std::uint32_t>(a));
      };
      size(40, large.batch, small.batch);
      size(200, large.query_len, small.query_len);
      size(4000, large.key_len, small.key_len);
      large.num_kv_heads = small.num_kv_heads = 1 + random.next_below(3);
      large.num_query_heads = small.num_query_heads = large.num_kv_heads * (1 + random.next_below(3));
      large.head_dim = small.head_dim = 1 + random.next_below(40);
      large.value_dim = small.value_dim = 1 + random.next_below(40);
      large.hidden = small.hidden = 5;
      AttentionSpec spec;
      if (trial % 2 == 1) spec.score = Additive{};
      const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
      const DType dtype = dtypes[trial % 3];
      const PlanOptions options{.dtype = dtype,
                                .precision = dtype == DType::f32 ? Precision::higher : Precision::full,
                                .kernel = info.isa};
      const AttentionPlan whole = make_plan(spec, large, options), part = make_plan(spec, small, options);
      ASSERT_LE(workspace_bytes(part, 2), workspace_bytes(whole, 2)) << info.isa << " trial " << trial;
      ASSERT_LE(backward_workspace_bytes(part, 2), backward_workspace_bytes(whole, 2))
          << info.isa << " batch " << small.batch << " of " << large.batch << ", queries " << small.query_len
          << " of " << large.query_len << ", keys " << small.key_len << " of " << large.key_len;
    }
  }
}

TEST(Layout, NoKeysOrNoQueries) {
  const AttentionPlan plan = make_plan(
      {.mask = Causal{}}, {.batch = 2, .query_len = 4, .key_len = 6, .head_dim = 8, .value_dim = 8});
  struct Sizes {
    std::int64_t batch, queries, keys;
  };
  for (const Sizes& s : {Sizes{2, 4, 0}, Sizes{2, 0, 6}, Sizes{0, 4, 6}}) {
    const Tensor q = random_tensor(DType::f32, {s.batch, 1, s.queries, 8}, 1),
                 k = random_tensor(DType::f32, {s.batch, 1, s.keys, 8}, 2);
    Tensor out(DType::f32, q.shape()), lse(DType::f32, {s.batch, 1, s.queries}),
        d_query(DType::f32, q.shape()), d_key(DType::f32, k.shape());
    for (Tensor t : {out, lse, d_query, d_key}) t.fill(7.0);
    attend(plan, {.query = q, .key = k, .value = k}, {.output = out, .log_sum_exp = lse});
    attend_backward(plan, {.query = q, .key = k, .value = k}, out, lse, out,
                    {.query = d_query, .key = d_key});
    for (const Tensor& t : {out, d_query, d_key}) {
      for (std::int64_t i = 0; i < t.count(); ++i) EXPECT_EQ(element(t, i), 0.0);
    }
    for (std::int64_t i = 0; i < lse.count(); ++i)
      EXPECT_EQ(element(lse, i), -std::numeric_limits<double>::infinity());
  }
}

TEST(Layout, ResultsOverModArgumentsAreRefused) {
  const AttentionPlan plan = make_plan({.mods = {DenseBias{}}, .normalizer = SoftmaxWithSink{}},
                                       {.query_len = 8, .key_len = 8, .head_dim = 8, .value_dim = 8});
  const Tensor x = random_tensor(DType::f32, {1, 1, 8, 8}, 1),
               bias = random_tensor(DType::f32, {1, 1, 8, 8}, 2), sink = random_tensor(DType::f32, {1}, 3),
               lse(DType::f32, {1, 1, 8}), out(DType::f32, x.shape()), d(DType::f32, x.shape());
  AttentionInputs in{.query = x, .key = x, .value = x};
  in.arguments.set("normalizer.sink", sink);
  in.arguments.set("mods[0].bias", bias);
  attend(plan, in, {.output = out, .log_sum_exp = lse});
  EXPECT_THROW(attend(plan, in, {.output = bias}), InvalidArgument);
  EXPECT_THROW(
      attend(plan, in, {.output = out, .log_sum_exp = TensorView(bias.raw(), DType::f32, {1, 1, 8})}),
      InvalidArgument);
  const auto refused = [&](const TensorView& d_query, const TensorView& d_bias, const TensorView& d_sink) {
    AttentionGradients g{.query = d_query};
    g.arguments.set("mods[0].bias", d_bias);
    g.arguments.set("normalizer.sink", d_sink);
    EXPECT_THROW(attend_backward(plan, in, out, lse, d, g), InvalidArgument);
  };
  refused(d, bias, {});   // over its own argument
  refused(bias, {}, {});  // another gradient over an argument
  refused(d, d, {});      // over another gradient (and d_output)
  refused({}, x, {});     // over an operand
  refused({}, {}, sink);  // over the sink
  const TensorView other(x.raw(), DType::f32, x.shape());
  EXPECT_THROW(attend_backward(plan, in, out, lse, out,
                               {.arguments = {{"mods[0].bias", other}, {"mods[0].bias", other}}}),
               InvalidArgument);  // two gradients for one argument
}

TEST(Layout, GradientsOverOperandsAreRefused) {
  const AttentionPlan plan = make_plan({}, {.query_len = 4, .key_len = 4, .head_dim = 8, .value_dim = 8});
  const Tensor x = random_tensor(DType::f32, {1, 1, 4, 8}, 1);
  Tensor out(DType::f32, x.shape()), lse(DType::f32, {1, 1, 4}), d(DType::f32, x.shape());
  const AttentionInputs in{.query = x, .key = x, .value = x};
  attend(plan, in, {.output = out, .log_sum_exp = lse});
  EXPECT_THROW(attend_backward(plan, in, out, lse, out, {.query = x}), InvalidArgument);
  EXPECT_THROW(attend_backward(plan, in, out, lse, out, {.query = d, .key = d}), InvalidArgument);
  EXPECT_THROW(attend_backward(plan, in, out, lse, out, {.query = out}), InvalidArgument);
  EXPECT_THROW(attend_backward(plan, in, out, lse, out, {.query = lse}), InvalidArgument);
}

// A mask of many parts costs time, but neither memory nor correctness: 900 windows of one key are a causal
// mask.
TEST(Layout, LongMasks) {
  Mask many = ~Mask(Everything{});
  for (std::int64_t i = 1; i < 900; ++i)
    many = many | (SlidingWindow{.lookback = i, .lookahead = 0} &
                   ~Mask(SlidingWindow{.lookback = i - 1, .lookahead = 0}));
  many = many | SlidingWindow{.lookback = 0, .lookahead = 0};
  const AttentionShape shape{.query_len = 40, .key_len = 40, .head_dim = 4, .value_dim = 4};
  const Tensor q = random_tensor(DType::f32, {1, 1, 40, 4}, 1),
               k = random_tensor(DType::f32, {1, 1, 40, 4}, 2);
  Tensor a(DType::f32, q.shape()), b(DType::f32, q.shape());
  attend(make_plan({.mask = many}, shape), q, k, k, a);
  attend(make_plan({.mask = Causal{}}, shape), q, k, k, b);
  expect_same(a, b, "900 windows");
}

// By one thread and by several.
TEST(ClearedRows, AreZeroAndNothingElseIs) {
  for (const int threads : {1, 3}) {
    const auto pool = make_thread_pool(threads);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // More than one piece, and rows of which a part is cleared.
      Tensor x(dtype, {3, 5, 700, 41});
      for (const std::int64_t width : {41, 7}) {
        x.fill(1.0);
        const std::int64_t first = width == 41 ? 0 : 2, heads = width == 41 ? 5 : 3;
        clear_rows(x.view().slice(1, 0, heads).slice(3, first, width), *pool);
        for (std::int64_t i = 0; i < x.count(); ++i) {
          const bool cleared = i / (700 * 41) % 5 < heads && i % 41 >= first && i % 41 < first + width;
          const float value =
              dtype == DType::f32 ? x.data<float>()[i] : static_cast<float>(x.data<bfloat16>()[i]);
          ASSERT_EQ(value, cleared ? 0.0f : 1.0f) << i << " with " << threads << " threads";
        }
      }
      clear_rows(TensorView(), *pool);
    }
  }
}

}  // namespace
}  // namespace fovea::testing
