// make_recurrence_plan: checks, and the choice of a kernel. explain prints both.
#include <cmath>

#include "core/shortest.h"
#include "fovea/core/kept_vector.h"
#include "plan/recurrence/choose.h"
#include "plan/recurrence/plan_impl.h"
#include "plan/recurrence/saved.h"

namespace fovea {
namespace {

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument("make_recurrence_plan", argument, expected, got);
}

}  // namespace

const RecurrenceSpec& RecurrencePlan::spec() const noexcept {
  return impl_->spec;
}
const RecurrenceShape& RecurrencePlan::shape() const noexcept {
  return impl_->shape;
}
DType RecurrencePlan::dtype() const noexcept {
  return impl_->dtype;
}
std::string_view RecurrencePlan::kernel() const noexcept {
  return impl_->candidate->name;
}
std::int64_t RecurrencePlan::chunk() const noexcept {
  return impl_->candidate->chunk;
}

RecurrencePlan make_recurrence_plan(const RecurrenceSpec& spec, const RecurrenceShape& shape,
                                    const RecurrenceOptions& options) {
  auto plan = make_kept<RecurrencePlan::Impl>();
  plan->spec = spec;
  plan->shape = checked_shape(spec, shape);
  plan->dtype = options.dtype;
  plan->scale = spec.scale.value_or(1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
  if (plan->dtype != DType::f64 && !std::isfinite(static_cast<float>(plan->scale)))
    refuse("spec.scale", "a number that a float holds", shortest(plan->scale));
  const kernels::RecurrenceRequest request{plan->write(), plan->decay(), plan->read(), plan->dtype,
                                           plan->shape.len};
  plan->candidate = choose_candidate<kernels::RecurrenceCandidate>(
      {"make_recurrence_plan", options.kernel, plan->refusals}, kernels::recurrence_candidates(),
      [&](const kernels::RecurrenceCandidate& candidate, bool named) {
        const char* reason = candidate.refuse(request);
        return reason || named || !candidate.slower ? reason : candidate.slower(request);
      });
  plan->hash = hash_of(*plan);
  plan->kernel_maps = plan->candidate->maps && plan->write() == WriteKind::additive;
  return RecurrencePlan(plan);
}

std::string explain(const RecurrencePlan& plan) {
  const RecurrencePlan::Impl& impl = plan.impl();
  const RecurrenceShape& s = impl.shape;
  std::string text = impl.candidate->name + text_of(impl.refusals);
  text += "\n" + to_string(impl.spec) + ", scale " + shortest(impl.scale);
  text += "\nbatch " + std::to_string(s.batch) + ", heads " + std::to_string(s.num_query_heads) + "/" +
          std::to_string(s.num_key_heads) + "/" + std::to_string(s.num_heads) +
          " of queries, keys, states, " + std::to_string(s.len) + " tokens, key_dim " +
          std::to_string(s.key_dim) + ", value_dim " + std::to_string(s.value_dim) + ", " +
          std::string(to_string(impl.dtype));
  return text;
}

std::vector<std::string> list_recurrence_kernels() {
  return names_of<kernels::RecurrenceCandidate>(kernels::recurrence_candidates());
}

}  // namespace fovea
