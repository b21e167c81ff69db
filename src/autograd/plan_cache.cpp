#include "fovea/autograd/plan_cache.h"

#include <algorithm>
#include <tuple>

namespace fovea::autograd {
namespace {

auto sizes_of(const AttentionShape& s) {
  return std::tuple(s.batch, s.num_query_heads, s.num_kv_heads, s.query_len, s.key_len, s.head_dim,
                    s.value_dim, s.key_dim, s.hidden);
}

}  // namespace

bool are_same(const AttentionSpec& a, const AttentionSpec& b) {
  // Does not compile if the spec gets a part that is not compared below.
  [[maybe_unused]] const auto& [score, scale, mods, mask, normalizer, weight_mods, dropout] = a;
  return a.score == b.score && a.scale == b.scale && a.mods == b.mods && a.mask == b.mask &&
         a.normalizer == b.normalizer && a.weight_mods == b.weight_mods && a.dropout == b.dropout;
}

AttentionPlan PlanCache::of(const AttentionSpec& spec, const AttentionShape& shape,
                            const PlanOptions& options) {
  const std::lock_guard lock(mutex_);
  // A plan fills in the sizes that a shape leaves to it, so only the sizes that the shape has are compared.
  const auto wanted = [&](const AttentionPlan& plan) {
    AttentionShape asked = shape;
    const AttentionShape& made = plan.shape();
    if (asked.num_kv_heads == 0) asked.num_kv_heads = made.num_kv_heads;
    if (asked.value_dim == AttentionShape::as_head_dim) asked.value_dim = made.value_dim;
    if (asked.key_dim == 0) asked.key_dim = made.key_dim;
    if (asked.hidden == 0) asked.hidden = made.hidden;
    return sizes_of(asked) == sizes_of(made) && are_same(plan.spec(), spec);
  };
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const std::optional<Made>& made) {
    return made && made->options == options && wanted(made->plan);
  });
  if (found != plans_.end()) {
    std::rotate(plans_.begin(), found, found + 1);
    return plans_.front()->plan;
  }
  AttentionPlan plan = make_plan(spec, shape, options);
  std::rotate(plans_.begin(), plans_.end() - 1, plans_.end());
  plans_.front() = {plan, options};
  ++made_;
  return plan;
}

std::int64_t PlanCache::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace fovea::autograd
