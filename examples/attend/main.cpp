// Causal attention through a sliding window: two query heads share one key and value head.
#include <cstdint>
#include <iostream>
#include <vector>

#include "fovea/core/tensor.h"
#include "fovea/plan/plan.h"

int main() {
  using namespace fovea;
  constexpr std::int64_t length = 6, head_dim = 4;
  const AttentionSpec spec{.score = ScaledDot{}, .mask = Causal{} & SlidingWindow{.lookback = 2}};
  const AttentionShape shape{.num_query_heads = 2,
                             .num_kv_heads = 1,
                             .query_len = length,
                             .key_len = length,
                             .head_dim = head_dim,
                             .value_dim = head_dim};
  const AttentionPlan plan = make_plan(spec, shape);  // validates, picks a kernel
  std::cout << explain(plan) << "\n";

  // Every value is its own position, so an output is the mean position that its query looks at.
  std::vector<float> query(2 * length * head_dim, 1.0f), key(length * head_dim, 1.0f), value,
      output(query.size());
  for (std::int64_t i = 0; i < length * head_dim; ++i) value.push_back(static_cast<float>(i / head_dim));
  const Shape query_shape{1, 2, length, head_dim}, key_shape{1, 1, length, head_dim};
  attend(plan, ConstTensorView(query.data(), query_shape), ConstTensorView(key.data(), key_shape),
         ConstTensorView(value.data(), key_shape), TensorView(output.data(), query_shape));

  for (std::int64_t i = 0; i < length; ++i)
    std::cout << output[i * head_dim] << (i + 1 < length ? " " : "\n");
}
