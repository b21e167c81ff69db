// What a layer of attention asks of the engine.
#include <algorithm>

#include "autograd/bf16_plan.h"
#include "fovea/attention/argument.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"
#include "fovea/nn/attention.h"

namespace fovea::nn {

AttentionShape MultiHeadAttention::shape_of(std::int64_t batch, std::int64_t query_len,
                                            std::int64_t key_len) const {
  return {.batch = batch,
          .num_query_heads = options_.num_query_heads,
          .num_kv_heads = options_.num_kv_heads,
          .query_len = query_len,
          .key_len = key_len,
          .head_dim = options_.head_dim,
          .value_dim = options_.value_dim,
          .hidden = definition(options_.spec.score).has_hidden() ? options_.hidden : 0};
}

namespace {

// A stream of its own: the golden-ratio multiple keeps it apart from the element-wise dropouts of the same
// step.
std::uint64_t next_seed(Context& context) {
  return context.dropout_seed ^ (0x9E3779B97F4A7C15u * ++context.dropout_stream);
}

// The engine would refuse it by its name and shape alone; a layer has three places that may give it.
void check_all_given(const AttentionPlan& plan, std::span<const autograd::AttentionArgument> given) {
  for (const DeclaredArgument& one : plan.arguments()) {
    const ArgumentDeclaration& declaration = one.declaration;
    if (declaration.absent != ArgumentDeclaration::Absent::refused ||
        std::any_of(given.begin(), given.end(), [&](const auto& item) { return item.name == one.name; }))
      continue;
    throw InvalidArgument("MultiHeadAttention", one.name,
                          declaration.start == ArgumentDeclaration::Start::given
                              ? "a tensor in call.arguments, because it is computed from the data"
                              : "a tensor in options.learned, options.fixed or call.arguments",
                          "none");
  }
}

}  // namespace

autograd::AttentionCall MultiHeadAttention::engine_call(Context& context, const Call& call,
                                                        const AttentionShape& shape,
                                                        autograd::Operands operands) const {
  autograd::AttentionCall engine;  // its spec is that of the plan
  AttentionSpec spec = options_.spec;
  spec.mask = masks_ ? options_.spec.mask & call.mask : call.mask;
  if (!context.training()) spec.dropout = {};
  if (call.key_log_sizes) {
    static const Mod bias = DenseBias{};  // one object, so that one plan serves all calls
    const Tensor& sizes = call.key_log_sizes;
    if (!(sizes.shape() == Shape{shape.batch, shape.key_len}))
      throw InvalidArgument("MultiHeadAttention", "call.key_log_sizes",
                            to_string(Shape{shape.batch, shape.key_len}), to_string(sizes.shape()));
    engine.arguments.push_back({"mods[" + std::to_string(spec.mods.size()) + "].bias",
                                sizes.reshape({shape.batch, 1, 1, shape.key_len})});
    spec.mods.push_back(bias);
  }
  engine.num_query_heads = options_.num_query_heads;
  engine.num_kv_heads = options_.num_kv_heads;
  engine.key_lengths = call.key_lengths;
  engine.query_offset = call.query_offset;
  engine.query_offsets = call.query_offsets;
  engine.query_starts = call.query_starts;
  engine.key_starts = call.key_starts;
  engine.weights = call.weights;
  if (call.sample_seed)
    engine.sample_seed = *call.sample_seed;
  else if (context.training() && draws(spec.normalizer))
    engine.sample_seed = next_seed(context);
  engine.advantage = call.advantage;
  for (const Argument& argument : arguments_)
    engine.arguments.push_back(
        {argument.name, argument.learned ? context.use(*argument.learned) : Var(argument.fixed)});
  engine.arguments.insert(engine.arguments.end(), call.arguments.begin(), call.arguments.end());
  if (spec.dropout.rate > 0.0) engine.dropout_seed = next_seed(context);
  if (options_.precision == Precision::full && options_.kernel.empty())
    engine.plan = autograd::bf16_plan(operands, spec, shape, plans_.get());
  if (!engine.plan)
    engine.plan = plans_->of(spec, shape, {.precision = options_.precision, .kernel = options_.kernel});
  check_all_given(*engine.plan, engine.arguments);
  return engine;
}

}  // namespace fovea::nn
