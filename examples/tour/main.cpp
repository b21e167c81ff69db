// A place to run a C++ block of the tour: the body of main is one of them.
#include "tour.h"

int main() {
  const Tensor h = tensor({1, 0, 0, 1, 1, 1}, {1, 1, 3, 2}), s = tensor({2, 0}, {1, 1, 1, 2});
  const AttentionPlan plan =
      make_plan({.score = Dot{}}, {.query_len = 1, .key_len = 3, .head_dim = 2, .value_dim = 2});
  Tensor context(DType::f32, {1, 1, 1, 2}), weights(DType::f32, {1, 1, 1, 3});
  attend(plan, {.query = s, .key = h, .value = h}, {.output = context, .weights = weights});
  show("weights", weights);
  show("context", context);
}
