// attention(): takes the sizes from the tensors, makes a plan and runs one call.
#include "fovea/plan/attention.h"

#include "plan/call.h"

namespace fovea {

Tensor attention(ConstTensorView query, ConstTensorView key, ConstTensorView value, const AttentionSpec& spec,
                 const Arguments& arguments) {
  const auto four = [](const char* argument, const ConstTensorView& view) {
    if (view.rank() != 4)
      throw InvalidArgument("attention", argument, "[batch, heads, length, dim]", described(view));
  };
  const bool keyless = definition(spec.score).key_rows >= 0;
  four("query", query);
  if (!keyless) four("key", key);
  four("value", value);
  const AttentionShape shape{.batch = query.size(0),
                             .num_query_heads = query.size(1),
                             .num_kv_heads = value.size(1),
                             .query_len = query.size(2),
                             .key_len = value.size(2),
                             .head_dim = query.size(3),
                             .value_dim = value.size(3),
                             .key_dim = keyless ? 0 : key.size(3),
                             .hidden = hidden_of(spec.score, arguments)};
  const AttentionPlan plan = make_plan(spec, shape, {.dtype = query.dtype()});
  Tensor output(query.dtype(), {shape.batch, shape.num_query_heads, shape.query_len, shape.value_dim});
  attend(plan, {.query = query, .key = key, .value = value, .arguments = arguments}, {.output = output});
  return output;
}

}  // namespace fovea
