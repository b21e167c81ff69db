// attention(): takes the sizes from the tensors, makes a plan and runs one call.
#include "fovea/plan/attention.h"

#include "fovea/plan/call_shape.h"
#include "fovea/plan/plan.h"
#include "plan/checks.h"

namespace fovea {

Tensor attention(ConstTensorView query, ConstTensorView key, ConstTensorView value, const AttentionSpec& spec,
                 const Arguments& arguments) {
  if (!is_given(
          value))  // without values the call would compute weights, and this function returns the output
    throw InvalidArgument("attention", "value", "[batch, heads, length, dim]", described(value));
  const AttentionInputs inputs{.query = query, .key = key, .value = value, .arguments = arguments};
  const AttentionShape shape = shape_of(spec, inputs);
  const AttentionPlan plan = make_plan(spec, shape, {.dtype = query.dtype()});
  Tensor output(query.dtype(), {shape.batch, shape.num_query_heads, shape.query_len, shape.value_dim});
  attend(plan, inputs, {.output = output});
  return output;
}

}  // namespace fovea
