// The shared case table: scores × masks × heads × shapes × dropout. One case gives correctness forward and
// backward, and a name to run it alone by.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "fovea/attention/expression.h"
#include "fovea/attention/masks.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"

namespace fovea::testing {

struct Case {
  std::string name;
  AttentionSpec spec;
  AttentionShape shape;
  std::vector<std::int64_t> key_lengths;  // for KeyLengths{}
  std::optional<std::int64_t> query_offset;
  std::vector<Shape> mod_arguments;  // sizes of each argument of spec.mods
};

// Lists of mods by number: every built-in alone, arguments shared in every way, chains, and mods of one's
// own.
inline void add_mods(Case& c, std::size_t n) {
  const std::int64_t B = c.shape.batch, H = c.shape.num_query_heads, Q = c.shape.query_len,
                     K = c.shape.key_len;
  // A gate a query and a gate a key; the derivatives by all three need the others.
  const Mod gates = make_mod("gates", {"query", "key"}, [](auto score, ModSite at, auto query, auto key) {
    return elementwise::sigmoid(query + key) * score +
           elementwise::where(at.query < at.key, query * key, key);
  });
  switch (n % 10) {
    case 0:
      c.spec.mods = {SoftCap{1.5}};
      return;
    case 1:
      c.spec.mods = {AlibiBias{}};
      c.mod_arguments = {{1, H, 1, 1}};
      return;
    case 2:
      c.spec.mods = {DenseBias{}};
      c.mod_arguments = {{B, H, Q, K}};
      return;
    case 3:
      c.spec.mods = {DenseBias{}};
      c.mod_arguments = {{1, 1, Q, K}};
      return;
    case 4:
      c.spec.mods = {RelativeBias{8, 20}};
      c.mod_arguments = {{1, H, 1, 8}};
      return;
    case 5:
      c.spec.mods = {SoftCap{2}, AlibiBias{}, DenseBias{}};
      c.mod_arguments = {{B, 1, 1, 1}, {1, 1, 1, K}};
      return;
    case 6:
      c.spec.mods = {gates};
      c.mod_arguments = {{B, H, Q, 1}, {B, H, 1, K}};
      return;
    case 7:
      c.spec.mods = {DenseBias{}, gates, SoftCap{3}};
      c.mod_arguments = {{1, H, Q, K}, {1, 1, Q, 1}, {B, 1, 1, 1}};
      return;
    case 8:
      c.spec.mods = {RelativeBias{6, 10, RelativeBias::Direction::causal}, DenseBias{}};
      c.mod_arguments = {{B, 1, 1, 6}, {1, H, Q, 1}};
      return;
    default:
      c.spec.mods = {make_mod("log", [](auto score, ModSite) {
        return elementwise::log(elementwise::exp(0.1 * score) + 1.0) * elementwise::abs(0.1 * score - 0.1);
      })};
      return;
  }
}

inline std::vector<Case> case_table() {
  struct Named {
    const char* name;
    Mask mask;
  };
  const std::vector<Named> masks{
      {"everything", Everything{}},
      {"causal", Causal{}},
      {"window", SlidingWindow{.lookback = 7, .lookahead = 3}},
      {"causal&window|global", (Causal{} & SlidingWindow{.lookback = 20}) | GlobalTokens{0, 5}},
      {"lengths", KeyLengths{}},
      {"~window&lengths", ~SlidingWindow{.lookback = 2, .lookahead = 2} & KeyLengths{}},
      {"nothing", ~Mask(Everything{})}};
  struct Size {
    std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  };
  const std::vector<Size> sizes{{2, 2, 2, 5, 7, 8, 8},       {1, 4, 2, 1, 33, 16, 24},
                                {1, 1, 1, 49, 129, 17, 5},   {2, 2, 1, 64, 64, 32, 32},
                                {1, 2, 2, 130, 260, 12, 40}, {1, 1, 1, 3, 1, 1, 1},
                                {1, 2, 1, 97, 31, 64, 64}};
  const std::vector<std::pair<const char*, Score>> scores{{"scaled-dot", ScaledDot{}},
                                                          {"dot", Dot{}},
                                                          {"bilinear", Bilinear{}},
                                                          {"additive", Additive{}},
                                                          {"low-rank", LowRankBilinear{}}};
  // Mods and the other masks, crossed with everything above in turn.
  const std::vector<Named> with_mods{
      {"everything", Everything{}},
      {"causal", Causal{}},
      {"~window&lengths", ~SlidingWindow{.lookback = 2, .lookahead = 2} & KeyLengths{}},
      {"nothing", ~Mask(Everything{})},
      {"prefix", Prefix{{9}}},
      {"documents", Documents{{3, 20, 20, 70, 140}}},
      {"chunked", Chunked{24}},
      {"strided&causal", Strided{5} & Causal{}},
      {"dilated", Dilated{4, 2, 3}},
      {"blocks", BigBird{.length = 260, .size = 16, .window = 1, .global = 1, .random = 2, .seed = 3}},
      {"tree|global", Tree{{0, 0, 0, 1, 1, 2, 5}} | GlobalTokens{0}},
      {"groups", Groups{{0, 0, 0, 0, 1, 1, 2, 2, 3, 4}}}};
  std::vector<Case> cases;
  std::size_t n = 0;
  std::vector<std::tuple<std::string, Score, Named, bool>> rows;
  for (const auto& [score_name, score] : scores) {
    for (const Named& mask : masks) rows.emplace_back(score_name, score, mask, false);
  }
  for (std::size_t m = 0; m < with_mods.size(); ++m) {
    const auto& [score_name, score] = scores[m % scores.size()];
    rows.emplace_back(score_name, score, with_mods[m], true);
  }
  for (const auto& [score_name, score, mask, mods] : rows) {
    {
      for (const Size& s : sizes) {
        Case c;
        c.spec = {.score = score, .mask = mask.mask};
        if (n % 3 == 1) c.spec.dropout.rate = 0.25;
        if (n % 5 == 2) c.query_offset = 0;
        if (n % 7 == 3) c.spec.scale = -0.3;
        const bool own_key_dim = score.index() >= 2;
        c.shape = {s.batch,
                   s.heads,
                   s.kv_heads,
                   s.queries,
                   s.keys,
                   s.dim,
                   s.value_dim,
                   own_key_dim ? s.dim + 3 : 0,
                   score.index() >= 3 ? 11 : 0};
        for (std::int64_t b = 0; b < s.batch; ++b)
          c.key_lengths.push_back(b == 0 ? std::max<std::int64_t>(s.keys - 2, 0) : s.keys / 2);
        if (mods) add_mods(c, n);
        if (mods && n % 4 == 1) c.spec.normalizer = SoftmaxWithSink{};
        if (mods && n % 4 == 2) c.spec.normalizer = Sigmoid{-1.5};
        std::string mod_names = c.spec.normalizer.index() == 0 ? "" : " " + to_string(c.spec.normalizer);
        for (const Mod& mod : c.spec.mods) mod_names += " " + to_string(mod);
        c.name = score_name + mod_names + " " + mask.name + " q" + std::to_string(s.queries) + " k" +
                 std::to_string(s.keys) + " d" + std::to_string(s.dim) +
                 (c.spec.dropout.rate > 0 ? " dropout" : "") + (c.query_offset ? " offset 0" : "");
        cases.push_back(c);
        ++n;
      }
    }
  }
  return cases;
}

/// Uniform in [-1, 1), a function of the seed.
inline Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    const double value = 2.0 * random.next_uniform() - 1.0;
    if (dtype == DType::f64) tensor.data<double>()[i] = value;
    if (dtype == DType::f32) tensor.data<float>()[i] = static_cast<float>(value);
    if (dtype == DType::bf16) tensor.data<bfloat16>()[i] = bfloat16(static_cast<float>(value));
    if (dtype == DType::f16) tensor.data<float16>()[i] = float16(static_cast<float>(value));
  }
  return tensor;
}

inline double element(const Tensor& t, std::int64_t i) {
  switch (t.dtype()) {
    case DType::f32:
      return t.data<float>()[i];
    case DType::f64:
      return t.data<double>()[i];
    case DType::bf16:
      return static_cast<double>(static_cast<float>(t.data<bfloat16>()[i]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(t.data<float16>()[i]));
  }
  return 0.0;
}
inline void set_element(const Tensor& t, std::int64_t i, double value) {
  switch (t.dtype()) {
    case DType::f32:
      t.data<float>()[i] = static_cast<float>(value);
      break;
    case DType::f64:
      t.data<double>()[i] = value;
      break;
    case DType::bf16:
      t.data<bfloat16>()[i] = bfloat16(static_cast<float>(value));
      break;
    case DType::f16:
      t.data<float16>()[i] = float16(static_cast<float>(value));
      break;
  }
}

struct Operands {
  Tensor query, key, value, W, U, v, b, d_output;
  std::vector<std::int64_t> key_lengths;
  Tensor sink;
  std::vector<Tensor> mod_arguments;
  std::vector<ConstTensorView> mod_views;

  Operands(const Case& c, DType dtype) : key_lengths(c.key_lengths) {
    const AttentionShape& s = c.shape;
    const std::int64_t key_dim = s.key_dim ? s.key_dim : s.head_dim;
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    query = random_tensor(dtype, {s.batch, s.num_query_heads, s.query_len, s.head_dim}, 1);
    key = random_tensor(dtype, {s.batch, s.num_kv_heads, s.key_len, key_dim}, 2);
    value = random_tensor(dtype, {s.batch, s.num_kv_heads, s.key_len, s.value_dim}, 3);
    d_output = random_tensor(dtype, {s.batch, s.num_query_heads, s.query_len, s.value_dim}, 4);
    if (std::holds_alternative<Bilinear>(c.spec.score)) {
      W = s.num_query_heads > 2 ? random_tensor(wide, {s.num_query_heads, key_dim, s.head_dim}, 5)
                                : random_tensor(wide, {key_dim, s.head_dim}, 5);
    }
    if (std::holds_alternative<Additive>(c.spec.score)) {
      W = random_tensor(wide, {s.hidden, s.head_dim}, 5);
      U = random_tensor(wide, {s.hidden, key_dim}, 6);
      v = random_tensor(wide, {s.hidden}, 7);
      b = random_tensor(wide, {s.hidden}, 8);
    }
    if (std::holds_alternative<SoftmaxWithSink>(c.spec.normalizer))
      sink = random_tensor(wide, {s.num_query_heads}, 9);
    if (std::holds_alternative<LowRankBilinear>(c.spec.score)) {
      W = random_tensor(wide, {s.hidden, s.head_dim}, 5);
      U = random_tensor(wide, {s.hidden, key_dim}, 6);
    }
    for (const Shape& sizes : c.mod_arguments) {
      mod_arguments.push_back(random_tensor(wide, sizes, 20 + mod_arguments.size()));
      mod_views.push_back(mod_arguments.back());
    }
  }
  AttentionInputs inputs(const Case& c) const {
    AttentionInputs in{.query = query,
                       .key = key,
                       .value = value,
                       .key_lengths = key_lengths,
                       .query_offset = c.query_offset,
                       .dropout_seed = 42};
    if (W) in.parameters.W = W;
    if (U) in.parameters.U = U;
    if (v) in.parameters.v = v;
    if (b) in.parameters.b = b;
    if (sink) in.sink = sink;
    in.mod_arguments = mod_views;
    return in;
  }
};

struct Results {
  Tensor output, log_sum_exp, weights, d_query, d_key, d_value, dW, dU, dv, db, d_sink;
  std::vector<Tensor> d_mods;
  std::vector<std::pair<const char*, Tensor>> all() const {
    std::vector<std::pair<const char*, Tensor>> list{{"output", output},
                                                     {"log_sum_exp", log_sum_exp},
                                                     {"weights", weights},
                                                     {"d_query", d_query},
                                                     {"d_key", d_key},
                                                     {"d_value", d_value},
                                                     {"score.W", dW},
                                                     {"score.U", dU},
                                                     {"score.v", dv},
                                                     {"score.b", db},
                                                     {"normalizer.sink", d_sink}};
    static constexpr const char* names[] = {"mod argument 0", "mod argument 1", "mod argument 2"};
    for (std::size_t n = 0; n < d_mods.size(); ++n) list.emplace_back(names[n], d_mods[n]);
    return list;
  }
};

/// Forward and backward. Results begin as NaN, so that an element never written is seen.
inline Results run_case(const Case& c, const Operands& o, DType dtype, const std::string& kernel,
                        Executor* executor = nullptr) {
  const AttentionPlan plan = make_plan(c.spec, c.shape, {.dtype = dtype, .kernel = kernel});
  const AttentionShape& s = c.shape;
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto like = [&](const Tensor& t) {
    if (!t) return Tensor();
    Tensor result(t.dtype(), t.shape());
    result.fill(nan);
    return result;
  };
  Results r;
  r.output = like(o.d_output);
  r.log_sum_exp = Tensor(wide, {s.batch, s.num_query_heads, s.query_len});
  r.log_sum_exp.fill(nan);
  r.weights = Tensor(wide, {s.batch, s.num_query_heads, s.query_len, s.key_len});
  r.weights.fill(nan);
  // The workspace is exactly as large as promised (and full of NaN), so that a sanitizer sees a kernel that
  // takes more.
  const int threads = executor ? executor->thread_count() : default_executor().thread_count();
  std::vector<std::byte> memory(
      std::max(workspace_bytes(plan, threads), backward_workspace_bytes(plan, threads)) + 63,
      std::byte{0xff});
  const CallResources resources{executor, memory};
  attend(plan, o.inputs(c), {.output = r.output, .log_sum_exp = r.log_sum_exp, .weights = r.weights},
         resources);
  r.d_query = like(o.query);
  r.d_key = like(o.key);
  r.d_value = like(o.value);
  r.dW = like(o.W);
  r.dU = like(o.U);
  r.dv = like(o.v);
  r.db = like(o.b);
  AttentionGradients g{.query = r.d_query, .key = r.d_key, .value = r.d_value};
  if (r.dW) g.W = r.dW;
  if (r.dU) g.U = r.dU;
  if (r.dv) g.v = r.dv;
  if (r.db) g.b = r.db;
  r.d_sink = like(o.sink);
  if (r.d_sink) g.sink = r.d_sink;
  std::vector<TensorView> mod_views;
  for (const Tensor& argument : o.mod_arguments) {
    r.d_mods.push_back(like(argument));
    mod_views.push_back(r.d_mods.back());
  }
  g.mod_arguments = mod_views;
  attend_backward(plan, o.inputs(c), r.output, r.log_sum_exp, o.d_output, g, resources);
  return r;
}

}  // namespace fovea::testing
