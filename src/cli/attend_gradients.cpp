#include "cli/attend_gradients.h"

#include <algorithm>

#include "fovea/mechanisms/forget.h"
#include "fovea/mechanisms/gate.h"
#include "fovea/mechanisms/local.h"

namespace fovea::cli {
namespace {

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

// The gradients that the engine computes, of operands and arguments.
class EngineGradients {
 public:
  EngineGradients(const AttendCall& call, GradientFiles& files) : call_(call) {
    const bool by_scores = call.differentiable_by_scores();
    list.value = files.like("value", call.inputs.value);
    if (by_scores) {
      list.query = files.like("query", call.inputs.query);
      list.key = files.like("key", call.inputs.key);
    }
    for (const CallArgument& argument : call.arguments) {
      const bool wanted = argument.gradient != CallArgument::Gradient::none &&
                          (by_scores || argument.name.starts_with("weight_mods["));
      tensors_.push_back(wanted ? Tensor(argument.value.dtype(), argument.value.shape()) : Tensor());
      if (wanted) list.arguments.set(argument.name, tensors_.back());
    }
  }
  AttentionGradients list;

  /// Adds those of arguments to the files: each as it was read.
  void add_files(GradientFiles& files) const {
    using Gradient = CallArgument::Gradient;
    for (std::size_t n = 0; n < tensors_.size(); ++n) {
      const CallArgument& argument = call_.arguments[n];
      if (!tensors_[n]) continue;
      if (argument.gradient == Gradient::own) files.add(argument.name, tensors_[n].reshape(argument.shape));
      // Both parts of the other two follow each other; the second one has its file with the first.
      const std::string part = argument.name.substr(0, argument.name.rfind('.'));
      if (argument.gradient == Gradient::concat && own_name(argument.name) == "W")
        files.add(argument.name, beside(tensors_[n], tensors_[n + 1]));
      if (argument.gradient == Gradient::log_forget && own_name(argument.name) == "query")
        files.add(part + ".log_forget", forget_gradient(tensors_[n], tensors_[n + 1], call_.query_offsets));
    }
  }
  /// That of the centers of --local-p; empty where there are none.
  Tensor of_centers() const {
    for (std::size_t n = 0; n < tensors_.size(); ++n) {
      if (call_.arguments[n].gradient == CallArgument::Gradient::centers) return tensors_[n];
    }
    return {};
  }

 private:
  const AttendCall& call_;
  std::vector<Tensor> tensors_;  // by the arguments of the call; empty where none is wanted
};

// Takes the gradients back through the changes of queries and keys before the scores: --rope and --local-p.
void finish_operands(const AttendCall& call, const EngineGradients& engine, GradientFiles& files,
                     Executor* executor) {
  const TensorView query = files.find("query");
  if (const TensorView key = files.find("key"); call.rope && query) {
    const std::vector<std::int64_t> of_queries = query_positions(call), of_keys = key_positions(call);
    rope_backward(*call.rope, query, std::span(of_queries), query, executor);
    rope_backward(*call.rope, key, std::span(of_keys), key, executor);
  }
  if (!call.local_W) return;
  local_centers_backward(
      {.query = call.query, .W = call.local_W, .v = call.local_v, .key_len = call.shape.key_len},
      engine.of_centers(),
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
  engine.add_files(files);
  finish_operands(call, engine, files, executor);
  return files;
}

}  // namespace fovea::cli
