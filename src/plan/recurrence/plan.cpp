// make_recurrence_plan: checks, and the choice of a kernel. explain prints both.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/shortest.h"
#include "plan/recurrence/plan_impl.h"

namespace fovea {
namespace {

using kernels::Isa;
using kernels::RecurrenceCandidate;

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument("make_recurrence_plan", argument, expected, got);
}

// The instruction set of that name, or that of the kernel of that name. FOVEA_ISA may name one of attention
// alone.
const Isa* isa_named(const std::string& wanted) {
  for (const RecurrenceCandidate& candidate : kernels::recurrence_candidates()) {
    if (wanted == candidate.name || wanted == candidate.isa->name) return candidate.isa;
  }
  for (const kernels::Candidate& candidate : kernels::candidates()) {
    if (wanted == candidate.name || wanted == candidate.isa->name) return candidate.isa;
  }
  return nullptr;
}

std::string known_names() {
  std::string names;
  for (const std::string& name : list_recurrence_kernels()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// The candidates that may run, best first: all, those of one instruction set and the sets it builds on, or
// one.
std::vector<const RecurrenceCandidate*> order_of(const std::string& wanted, const char* argument) {
  std::vector<const RecurrenceCandidate*> order;
  const Isa* isa = wanted.empty() ? nullptr : isa_named(wanted);
  if (!wanted.empty() && !isa)
    refuse(argument, "one of " + known_names() + ", or an instruction set", "'" + wanted + "'");
  if (isa) {
    if (const char* absence = isa->absence())
      refuse(argument, "a kernel that can run on this machine", wanted + ": " + absence);
  }
  for (const RecurrenceCandidate& candidate : kernels::recurrence_candidates()) {
    if (wanted.empty() || wanted == candidate.name) order.push_back(&candidate);
  }
  for (; isa && order.empty(); isa = isa->base) {
    for (const RecurrenceCandidate& candidate : kernels::recurrence_candidates()) {
      if (candidate.isa == isa) order.push_back(&candidate);
    }
  }
  return order;
}

void choose(RecurrencePlan::Impl& plan, const std::string& wanted, const char* argument) {
  const kernels::RecurrenceRequest request{plan.write(), plan.decay(), plan.read(), plan.shape.len};
  for (const RecurrenceCandidate* candidate : order_of(wanted, argument)) {
    const char* reason = candidate->refuse(request);
    if (!reason) reason = candidate->isa->absence();
    if (!reason && candidate->slower && wanted != candidate->name) reason = candidate->slower(request);
    if (!reason) {
      plan.candidate = candidate;
      return;
    }
    plan.refusals.push_back("refused " + candidate->name + ": " + reason);
  }
  refuse(argument, "a kernel that takes this spec", plan.refusals.empty() ? wanted : plan.refusals.front());
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
  auto plan = std::make_shared<RecurrencePlan::Impl>();
  plan->spec = spec;
  plan->shape = checked_shape(spec, shape);
  plan->dtype = options.dtype;
  plan->scale = spec.scale.value_or(1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
  if (plan->dtype != DType::f64 && !std::isfinite(static_cast<float>(plan->scale)))
    refuse("spec.scale", "a number that a float holds", shortest(plan->scale));
  const char* environment = std::getenv("FOVEA_ISA");
  if (!options.kernel.empty())
    choose(*plan, options.kernel, "options.kernel");
  else
    choose(*plan, environment ? environment : "", "FOVEA_ISA");
  return RecurrencePlan(plan);
}

std::string explain(const RecurrencePlan& plan) {
  const RecurrencePlan::Impl& impl = plan.impl();
  const RecurrenceShape& s = impl.shape;
  std::string text = impl.candidate->name;
  for (const std::string& refusal : impl.refusals) text += "; " + refusal;
  text += "\n" + to_string(impl.spec) + ", scale " + shortest(impl.scale);
  text += "\nbatch " + std::to_string(s.batch) + ", heads " + std::to_string(s.num_query_heads) + "/" +
          std::to_string(s.num_key_heads) + "/" + std::to_string(s.num_heads) +
          " of queries, keys, states, " + std::to_string(s.len) + " tokens, key_dim " +
          std::to_string(s.key_dim) + ", value_dim " + std::to_string(s.value_dim) + ", " +
          std::string(to_string(impl.dtype));
  return text;
}

std::vector<std::string> list_recurrence_kernels() {
  std::vector<std::string> names;
  for (const RecurrenceCandidate& candidate : kernels::recurrence_candidates())
    names.push_back(candidate.name);
  return names;
}

}  // namespace fovea
