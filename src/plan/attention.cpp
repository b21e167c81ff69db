// attention(): takes the sizes from the tensors, makes a plan and runs one call.
#include "fovea/plan/attention.h"

#include "fovea/plan/call_shape.h"
#include "fovea/plan/plan.h"
#include "plan/checks.h"

namespace fovea {

Tensor attention(ConstTensorView query, ConstTensorView key, ConstTensorView value, const AttentionSpec& spec,
                 const Arguments& arguments) {
  return attention(spec, {.query = query, .key = key, .value = value, .arguments = arguments});
}

Tensor attention(const AttentionSpec& spec, const AttentionInputs& inputs) {
  // Without values the call would compute weights, and this function returns the output.
  if (!is_given(inputs.value))
    throw InvalidArgument("attention", "value", "[batch, heads, length, dim]", described(inputs.value));
  const AttentionShape shape = shape_of(spec, inputs, "attention");
  const DType dtype = inputs.query.dtype();
  try {
    const AttentionPlan plan = make_plan(spec, shape, {.dtype = dtype});
    Tensor output(dtype, {shape.batch, shape.num_query_heads, shape.query_len, shape.value_dim});
    attend(plan, inputs, {.output = output});
    return output;
  } catch (const InvalidArgument& error) {  // by the name of the function that was called
    throw InvalidArgument("attention", error.argument(), error.expected(), error.got());
  }
}

}  // namespace fovea
