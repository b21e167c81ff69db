#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "cli/npy.h"
#include "fovea/attention/expression.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/rope.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string query, key, value, out, weights, lse, score = "scaled-dot", mask = "everything";
  std::string bilinear, additive_query, additive_key, additive_vector, low_rank_query, low_rank_key, grad,
      grad_out;
  std::string normalizer = "softmax", sink, rope;
  std::vector<std::string> mods;
  std::optional<double> scale;
  std::optional<std::int64_t> query_offset;
  int threads = 0;
  bool explain = false;
};

Tensor read_four(const std::string& path, const char* flag) {
  Tensor tensor = read_npy(path);
  if (tensor.rank() != 4)
    throw InvalidArgument("fovea attend", flag, "4 axes [batch, heads, length, dim]",
                          to_string(tensor.shape()));
  return tensor;
}

// A text of the algebra's grammar, its mistake told by the flag it came with.
template <class Parse>
auto parsed(const char* flag, Parse parse, const std::string& text) {
  try {
    return parse(text);
  } catch (const ExpressionError& error) {
    throw Error(fmt::format("{}, column {}: expected {}, got {}", flag, error.column(), error.expected(),
                            error.got()));
  }
}

struct Parameters {
  Tensor W, U, v;
};

Parameters read_parameters(const Options& o) {
  Parameters p;
  const auto unused = [&](const std::string& path, const char* flag, const char* score) {
    if (!path.empty() && o.score != score)
      throw InvalidArgument("fovea attend", flag, std::string("--score ") + score, "--score " + o.score);
  };
  unused(o.bilinear, "--bilinear", "bilinear");
  unused(o.additive_query, "--additive-query", "additive");
  unused(o.additive_key, "--additive-key", "additive");
  unused(o.additive_vector, "--additive-vector", "additive");
  unused(o.low_rank_query, "--low-rank-query", "low-rank");
  unused(o.low_rank_key, "--low-rank-key", "low-rank");
  if (o.score == "low-rank") {
    if (o.low_rank_query.empty() || o.low_rank_key.empty())
      throw InvalidArgument("fovea attend", "--low-rank-query, --low-rank-key",
                            "two files for --score low-rank", "fewer");
    p.W = read_npy(o.low_rank_query);
    p.U = read_npy(o.low_rank_key);
  }
  if (o.score == "bilinear") {
    if (o.bilinear.empty())
      throw InvalidArgument("fovea attend", "--bilinear", "a file with W for --score bilinear", "none");
    p.W = read_npy(o.bilinear);
  }
  if (o.score == "additive") {
    if (o.additive_vector.empty())
      throw InvalidArgument("fovea attend", "--additive-vector", "a file with v for --score additive",
                            "none");
    p.v = read_npy(o.additive_vector);
    if (!o.additive_query.empty()) p.W = read_npy(o.additive_query);
    if (!o.additive_key.empty()) p.U = read_npy(o.additive_key);
  }
  return p;
}

struct ModOptions {
  Mods mods;
  std::vector<Tensor> arguments;
  std::vector<std::string> names;  // of each argument: "mods[0].slope"
};

// An argument of fewer axes than four: [heads] of slopes, [heads, buckets] of a table, [query_len, key_len]
// of a bias, [heads, query_len, key_len].
Tensor four_axes(const ModNode& node, const Tensor& given) {
  const auto one = [&](int axis) { return given.rank() > axis ? given.size(axis) : 1; };
  switch (given.rank()) {
    case 1:
      return given.reshape(node.entries() > 0 ? Shape{1, 1, 1, one(0)} : Shape{1, one(0), 1, 1});
    case 2:
      return given.reshape(node.entries() > 0 ? Shape{1, one(0), 1, one(1)} : Shape{1, 1, one(0), one(1)});
    case 3:
      return given.reshape({1, one(0), one(1), one(2)});
    default:
      return given;
  }
}

// "alibi" alone has the slopes of its paper.
Tensor default_slopes(std::int64_t heads, DType dtype) {
  Tensor slopes(dtype, {1, heads, 1, 1});
  const std::vector<double> values = alibi_slopes(heads);
  for (std::size_t h = 0; h < values.size(); ++h) {
    if (dtype == DType::f64)
      slopes.data<double>()[h] = values[h];
    else
      slopes.data<float>()[h] = static_cast<float>(values[h]);
  }
  return slopes;
}

ModOptions read_mods(const Options& o, const Tensor& query) {
  ModOptions result;
  for (const std::string& text : o.mods) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals),
                      path = equals == std::string::npos ? "" : text.substr(equals + 1);
    result.mods.push_back(parsed("--mod", parse_mod, name));
    const ModNode& node = result.mods.back().node();
    if (node.arguments().empty() != path.empty() && !(name == "alibi" && path.empty())) {
      throw InvalidArgument("fovea attend", "--mod " + name,
                            node.arguments().empty() ? "no file" : "=FILE with its " + node.arguments()[0],
                            path.empty() ? "none" : path);
    }
    if (node.arguments().empty()) continue;
    result.names.push_back(fmt::format("mods[{}].{}", result.mods.size() - 1, node.arguments()[0]));
    result.arguments.push_back(path.empty() ? default_slopes(query.size(1), query.dtype())
                                            : four_axes(node, read_npy(path)));
  }
  return result;
}

// The normaliser, and its sink where it has one.
Tensor read_normalizer(const Options& o, AttentionSpec& spec) {
  spec.normalizer = parsed("--normalizer", parse_normalizer, o.normalizer);
  const bool wanted = std::holds_alternative<SoftmaxWithSink>(spec.normalizer);
  if (wanted == o.sink.empty())
    throw InvalidArgument("fovea attend", "--sink",
                          wanted ? "a file with a sink a head" : "--normalizer sink beside it",
                          wanted ? "none" : o.normalizer);
  return wanted ? read_npy(o.sink) : Tensor();
}

// --rope: query and key are turned where they stand, and so are their gradients, back.
struct Rotation {
  std::optional<RopeTable> table;
  std::int64_t query_offset = 0;
};

Rotation rotate(const Options& o, const Tensor& query, const Tensor& key, Executor* executor) {
  if (o.rope.empty()) return {};
  const Rope rope = parsed("--rope", parse_rope, o.rope);
  const std::int64_t head_dim = std::min(query.size(3), key.size(3)),
                     offset = o.query_offset.value_or(key.size(2) - query.size(2));
  if (rope.rotary_dim > head_dim)
    throw InvalidArgument("fovea attend", "--rope",
                          fmt::format("at most the {} elements of a head", head_dim), o.rope);
  if (offset < 0 || offset > std::int64_t{1} << 40)
    throw InvalidArgument("fovea attend", "--query-offset", "an offset in [0, 2^40] with --rope",
                          std::to_string(offset));
  const Rotation rotation{
      RopeTable(rope, std::max(key.size(2), offset + query.size(2)), query.dtype(), executor), offset};
  rope_forward(*rotation.table, query, offset, query, executor);
  rope_forward(*rotation.table, key, 0, key, executor);
  return rotation;
}

// Gradients of everything that was given, as files of a folder.
void write_gradients(const Options& o, const AttentionPlan& plan, const AttentionInputs& inputs,
                     const AttentionOutputs& outputs, const ModOptions& mods, const Rotation& rotation,
                     Executor* executor) {
  const Tensor d_output = read_npy(o.grad);
  std::vector<std::pair<std::string, Tensor>> results;
  const auto like = [&](const std::string& name, const ConstTensorView& view) {
    if (!view) return TensorView();
    return results.emplace_back(name, Tensor(view.dtype(), view.shape())).second.view();
  };
  AttentionGradients g{.query = like("query", inputs.query),
                       .key = like("key", inputs.key),
                       .value = like("value", inputs.value),
                       .W = like("score.W", inputs.parameters.W),
                       .U = like("score.U", inputs.parameters.U),
                       .v = like("score.v", inputs.parameters.v),
                       .b = {},
                       .sink = like("normalizer.sink", inputs.sink)};
  std::vector<TensorView> d_mods;
  for (std::size_t n = 0; n < mods.arguments.size(); ++n)
    d_mods.push_back(like(mods.names[n], mods.arguments[n]));
  g.mod_arguments = d_mods;
  attend_backward(plan, inputs, outputs.output, outputs.log_sum_exp, d_output, g, {.executor = executor});
  if (rotation.table) {
    rope_backward(*rotation.table, g.query, rotation.query_offset, g.query, executor);
    rope_backward(*rotation.table, g.key, 0, g.key, executor);
  }
  std::filesystem::create_directories(o.grad_out);
  for (const auto& [name, tensor] : results) write_npy(o.grad_out + "/" + name + ".npy", tensor);
}

// One file for two results would keep the last one written.
void check_outputs(const Options& o) {
  const std::pair<const char*, const std::string*> files[] = {
      {"--out", &o.out}, {"--weights", &o.weights}, {"--lse", &o.lse}};
  for (const auto& [flag, path] : files) {
    for (const auto& [other, other_path] : files) {
      if (flag != other && !path->empty() && !other_path->empty() && same_file(*path, *other_path))
        throw InvalidArgument("fovea attend", flag, std::string("a file other than that of ") + other, *path);
    }
    for (const std::string* read :
         {&o.query, &o.key, &o.value, &o.bilinear, &o.additive_query, &o.additive_key, &o.additive_vector,
          &o.low_rank_query, &o.low_rank_key}) {
      if (!path->empty() && !read->empty() && same_file(*path, *read))
        throw InvalidArgument("fovea attend", flag, "a file other than those it reads", *path);
    }
  }
}

void check_shapes(const Tensor& query, const Tensor& key, const Tensor& value) {
  const auto check = [](const char* flag, const Tensor& tensor, int axis, const char* what,
                        std::int64_t expected) {
    if (tensor.size(axis) != expected)
      throw InvalidArgument("fovea attend", flag, fmt::format("a {} of {}", what, expected),
                            to_string(tensor.shape()));
  };
  check("--key", key, 0, "batch, as --query has,", query.size(0));
  check("--value", value, 0, "batch, as --query has,", query.size(0));
  check("--value", value, 1, "number of heads, as --key has,", key.size(1));
  check("--value", value, 2, "length, as --key has,", key.size(2));
}

void run(const Options& o) {
  check_outputs(o);
  const Tensor query = read_four(o.query, "--query"), key = read_four(o.key, "--key"),
               value = read_four(o.value, "--value");
  check_shapes(query, key, value);
  const Parameters parameters = read_parameters(o);
  const ModOptions mods = read_mods(o, query);
  AttentionSpec spec{.scale = o.scale, .mods = mods.mods, .mask = parsed("--mask", parse_mask, o.mask)};
  const Tensor sink = read_normalizer(o, spec);
  if (o.score == "dot") spec.score = Dot{};
  if (o.score == "bilinear") spec.score = Bilinear{};
  if (o.score == "additive") spec.score = Additive{};
  if (o.score == "low-rank") spec.score = LowRankBilinear{};
  const AttentionShape shape{.batch = query.size(0),
                             .num_query_heads = query.size(1),
                             .num_kv_heads = key.size(1),
                             .query_len = query.size(2),
                             .key_len = key.size(2),
                             .head_dim = query.size(3),
                             .value_dim = value.size(3),
                             .key_dim = key.size(3),
                             .hidden = parameters.v            ? parameters.v.count()
                                       : o.score == "low-rank" ? parameters.W.size(0)
                                                               : 0};
  const AttentionPlan plan = make_plan(spec, shape, {.dtype = query.dtype()});
  if (o.explain) fmt::print("{}\n", explain(plan, o.query_offset));
  std::unique_ptr<Executor> pool;
  if (o.threads > 0) pool = make_thread_pool(o.threads);
  const DType dtype = query.dtype();
  const Tensor out(dtype, {shape.batch, shape.num_query_heads, shape.query_len, shape.value_dim});
  Tensor lse, weights;
  AttentionOutputs outputs{.output = out};
  if (!o.lse.empty() || !o.grad.empty())
    outputs.log_sum_exp = lse = Tensor(dtype, {shape.batch, shape.num_query_heads, shape.query_len});
  if (!o.weights.empty())
    outputs.weights = weights =
        Tensor(dtype, {shape.batch, shape.num_query_heads, shape.query_len, shape.key_len});
  AttentionInputs inputs{.query = query, .key = key, .value = value, .query_offset = o.query_offset};
  if (parameters.W) inputs.parameters.W = parameters.W;
  if (parameters.U) inputs.parameters.U = parameters.U;
  if (parameters.v) inputs.parameters.v = parameters.v;
  const std::vector<ConstTensorView> mod_arguments(mods.arguments.begin(), mods.arguments.end());
  inputs.mod_arguments = mod_arguments;
  if (sink) inputs.sink = sink;
  const Rotation rotation = rotate(o, query, key, pool.get());
  attend(plan, inputs, outputs, {.executor = pool.get()});
  if (!o.grad.empty()) write_gradients(o, plan, inputs, outputs, mods, rotation, pool.get());
  write_npy(o.out, out);
  if (!o.lse.empty()) write_npy(o.lse, lse);
  if (weights) write_npy(o.weights, weights);
}

}  // namespace

void register_attend(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "attend", "Run the attention engine on NumPy files (f32, f64; [batch, heads, length, dim])");
  command->add_option("--query", o->query)->required();
  command->add_option("--key", o->key)->required();
  command->add_option("--value", o->value)->required();
  command->add_option("--out", o->out, "output [batch, heads, query_len, value_dim]")->required();
  command->add_option("--weights", o->weights, "attention weights [batch, heads, query_len, key_len]");
  command->add_option("--lse", o->lse, "log-sum-exp [batch, heads, query_len]");
  command->add_option("--score", o->score)
      ->check(CLI::IsMember({"scaled-dot", "dot", "bilinear", "additive", "low-rank"}));
  command->add_option("--bilinear", o->bilinear, "W [key_dim, query_dim] of s = k'Wq");
  command->add_option("--additive-query", o->additive_query, "W [hidden, query_dim] of s = v'tanh(Wq + Uk)");
  command->add_option("--additive-key", o->additive_key, "U [hidden, key_dim]");
  command->add_option("--additive-vector", o->additive_vector, "v [hidden]");
  command->add_option("--low-rank-query", o->low_rank_query, "W [rank, query_dim] of s = (Uk)'(Wq)");
  command->add_option("--low-rank-key", o->low_rank_key, "U [rank, key_dim]");
  command->add_option("--scale", o->scale,
                      "multiplies the score; default 1/sqrt(head_dim) for scaled-dot, else 1");
  command->add_option(
      "--mask", o->mask,
      "causal, window(LOOKBACK,LOOKAHEAD), global(I,...), lengths(N,...), everything, & | ~ ( )");
  command
      ->add_option("--mod", o->mods,
                   "softcap(CAP), alibi[=SLOPES.npy], bias=BIAS.npy, "
                   "relative(BUCKETS,MAX_DISTANCE,causal|bidirectional)"
                   "=TABLE.npy; again for the next one")
      ->allow_extra_args(false);
  command->add_option("--normalizer", o->normalizer, "softmax, sink (with --sink), sigmoid(BIAS)");
  command->add_option("--sink", o->sink, "learned sinks [heads]");
  command->add_option(
      "--rope", o->rope,
      "turn query and key by their positions: rope(ROTARY_DIM,base=BASE,interleaved,SCALING), "
      "SCALING linear(F), ntk(F), dynamic(F,POSITIONS), yarn(F,POSITIONS), "
      "llama3(F,LOW,HIGH,POSITIONS)");
  auto* grad =
      command->add_option("--grad", o->grad, "dO [batch, heads, query_len, value_dim]: write gradients too");
  auto* folder =
      command->add_option("--grad-out", o->grad_out,
                          "folder of query.npy, key.npy, value.npy, score.W.npy, mods[0].slope.npy ...");
  grad->needs(folder);
  folder->needs(grad);
  command->add_option("--query-offset", o->query_offset,
                      "position of query row 0; default key_len - query_len");
  command->add_option("--threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->add_flag("--explain", o->explain,
                    "print the kernel, why better ones refused, and the tiles the mask skips");
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli
