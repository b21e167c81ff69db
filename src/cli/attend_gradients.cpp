#include "cli/attend_gradients.h"

#include <algorithm>

#include "fovea/mechanisms/forget.h"
#include "fovea/mechanisms/gate.h"
#include "fovea/mechanisms/local.h"

namespace fovea::cli {
namespace {

// The gradients of the arguments of one list of mods; an empty tensor where none is wanted.
struct ModGradients {
  std::vector<Tensor> tensors;

  ModGradients(const std::vector<ModArgument>& arguments, bool wanted) {
    for (std::size_t n = 0; n < arguments.size(); ++n) {
      const bool of_gates = n > 0 && arguments[n - 1].gradient == ModArgument::Gradient::log_forget;
      const bool used = arguments[n].gradient != ModArgument::Gradient::none || of_gates;
      const ConstTensorView& view = arguments[n].view;
      tensors.push_back(wanted && used ? Tensor(view.dtype(), view.shape()) : Tensor());
    }
  }
};

void add_files(const std::vector<ModArgument>& arguments, const ModGradients& gradients,
               std::span<const std::int64_t> offsets, GradientFiles& files) {
  using Gradient = ModArgument::Gradient;
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const ModArgument& argument = arguments[n];
    if (!gradients.tensors[n]) continue;
    if (argument.gradient == Gradient::own)
      files.add(argument.name, gradients.tensors[n].reshape(argument.shape));
    if (argument.gradient == Gradient::log_forget)
      files.add(argument.name, forget_gradient(gradients.tensors[n], gradients.tensors[n + 1], offsets));
  }
}

// The columns of a and of b beside each other: [rows, columns of a + columns of b].
Tensor beside(const Tensor& a, const Tensor& b) {
  Tensor whole(a.dtype(), {a.size(0), a.size(1) + b.size(1)});
  const auto element = static_cast<std::int64_t>(size_of(a.dtype()));
  const std::int64_t first = a.size(1) * element, second = b.size(1) * element;
  for (std::int64_t row = 0; row < a.size(0); ++row) {
    std::byte* to = whole.raw() + row * (first + second);
    std::copy_n(a.raw() + row * first, first, to);
    std::copy_n(b.raw() + row * second, second, to + first);
  }
  return whole;
}

// The gradients that the engine computes, by operands and arguments. Those of a concat matrix come in two
// parts.
struct EngineGradients {
  AttentionGradients list;
  Tensor concat_query, concat_key;

  EngineGradients(const AttendCall& call, GradientFiles& files) {
    const AttentionInputs& in = call.inputs;
    list.value = files.like("value", in.value);
    if (!call.differentiable_by_scores()) return;
    list.query = files.like("query", in.query);
    list.key = files.like("key", in.key);
    for (const NamedArgument<ConstTensorView>& argument : in.arguments.all()) {
      if (argument.name.starts_with("mods[") || argument.name.starts_with("weight_mods[")) continue;
      const bool cut = call.concat && (argument.name == "score.W" || argument.name == "score.U");
      if (!cut) list.arguments.set(argument.name, files.like(argument.name, argument.view));
    }
    if (!call.concat) return;
    concat_query = Tensor(call.concat.dtype(), in.arguments["score.W"].shape());
    concat_key = Tensor(call.concat.dtype(), in.arguments["score.U"].shape());
    list.arguments.set("score.W", concat_query);
    list.arguments.set("score.U", concat_key);
  }
};

// Takes the gradients back through the changes of queries and keys before the scores: --rope and --local-p.
void finish_operands(const AttendCall& call, const ModGradients& weight_mods, GradientFiles& files,
                     Executor* executor) {
  const TensorView query = files.find("query");
  if (const TensorView key = files.find("key"); call.rope && query) {
    const std::vector<std::int64_t> positions = query_positions(call);
    rope_backward(*call.rope, query, std::span(positions), query, executor);
    rope_backward(*call.rope, key, 0, key, executor);
  }
  if (!call.local_W) return;
  local_centers_backward(
      {.query = call.query, .W = call.local_W, .v = call.local_v, .key_len = call.shape.key_len},
      weight_mods.tensors.back(),
      {.query = query,
       .W = files.like("local.W", call.local_W),
       .v = files.like("local.v", call.local_v),
       .query_before = query},
      {.executor = executor});
}

}  // namespace

GradientFiles attend_gradients(const AttendOptions& o, const AttendCall& call, Mechanism& mechanism,
                               const AttendResults& results, Executor* executor) {
  GradientFiles files;
  EngineGradients engine(call, files);
  const ModGradients mods(call.mods, call.differentiable_by_scores()), weight_mods(call.weight_mods, true);
  const auto want = [&](const std::vector<ModArgument>& arguments, const ModGradients& gradients) {
    for (std::size_t n = 0; n < arguments.size(); ++n)
      engine.list.arguments.set(arguments[n].argument, gradients.tensors[n]);
  };
  want(call.mods, mods);
  want(call.weight_mods, weight_mods);
  AttentionLoss loss;
  if (results.output) loss.output = results.output;
  if (results.log_sum_exp) loss.log_sum_exp = results.log_sum_exp;
  if (call.d_output) loss.d_output = call.d_output;
  if (call.d_weights) loss.d_weights = call.d_weights;
  if (call.advantage) loss.advantage = call.advantage;
  loss.weight_heads = o.weight_heads;
  loss.weight_rows = o.weight_rows;
  Tensor d_ungated;
  if (call.gate && call.d_output) {
    loss.d_output = d_ungated = Tensor(results.output.dtype(), results.output.shape());
    gate_output_backward(results.output, call.gate, call.d_output,
                         {.output = d_ungated, .gate = files.like("gate", call.gate)},
                         {.executor = executor});
  }
  mechanism.backward(loss, engine.list, files, executor);
  if (engine.concat_query) files.add("score.W", beside(engine.concat_query, engine.concat_key));
  add_files(call.mods, mods, call.query_offsets, files);
  add_files(call.weight_mods, weight_mods, call.query_offsets, files);
  finish_operands(call, weight_mods, files, executor);
  return files;
}

}  // namespace fovea::cli
