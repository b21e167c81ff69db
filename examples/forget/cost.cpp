#include "cost.h"

#include <algorithm>
#include <limits>

#include "fovea/attention/mask_definition.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"
#include "gallery.h"

namespace forget {
namespace {

using namespace fovea;

Tensor drawn(const Shape& shape, std::uint64_t key) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream random(key);
  for (std::int64_t i = 0; i < tensor.count(); ++i) tensor.data<float>()[i] = random.next_uniform() - 0.5f;
  return tensor;
}

double pairs_of(const Mask& mask, std::int64_t length) {
  std::int64_t pairs = 0;
  for (std::int64_t query = 0; query < length; ++query) {
    const BlockSpans spans =
        mask.node().spans({.query_begin = query, .query_end = query + 1, .key_len = length});
    for (const KeySpan& span : spans.some) pairs += span.end - span.begin;
  }
  return static_cast<double>(pairs);
}

}  // namespace

Cost cost_of(const Mask& mask, std::int64_t length, const HeadShape& shape, int repeats) {
  const AttentionPlan plan = make_plan({.mask = mask}, {.batch = 1,
                                                        .num_query_heads = shape.heads,
                                                        .num_kv_heads = shape.heads,
                                                        .query_len = length,
                                                        .key_len = length,
                                                        .head_dim = shape.dim,
                                                        .value_dim = shape.dim});
  const Shape size{1, shape.heads, length, shape.dim};
  const Tensor query = drawn(size, 1), key = drawn(size, 2), value = drawn(size, 3), out(DType::f32, size);
  Cost cost{.pairs = pairs_of(mask, length),
            .seconds = std::numeric_limits<double>::infinity(),
            .workspace = workspace_bytes(plan, 1),
            .explanation = explain(plan)};
  for (int i = 0; i < repeats; ++i) {
    const gallery::Stopwatch call;
    attend(plan, query, key, value, out);
    cost.seconds = std::min(cost.seconds, call.seconds());
  }
  return cost;
}

}  // namespace forget
