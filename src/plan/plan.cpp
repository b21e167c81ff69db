#include "fovea/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/check_size.h"
#include "core/shortest.h"
#include "fovea/attention/expression.h"
#include "plan/plan_impl.h"

namespace fovea {
namespace {

constexpr const char* make_plan_name = "make_plan";

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument(make_plan_name, argument, expected, got);
}

AttentionShape checked_shape(const AttentionSpec& spec, AttentionShape shape) {
  check_size(make_plan_name, "shape.batch", shape.batch, 0);
  check_size(make_plan_name, "shape.num_query_heads", shape.num_query_heads, 1);
  check_size(make_plan_name, "shape.num_kv_heads", shape.num_kv_heads, 1);
  check_size(make_plan_name, "shape.query_len", shape.query_len, 0);
  check_size(make_plan_name, "shape.key_len", shape.key_len, 0);
  check_size(make_plan_name, "shape.head_dim", shape.head_dim, 1);
  if (shape.value_dim == AttentionShape::as_head_dim) shape.value_dim = shape.head_dim;
  check_size(make_plan_name, "shape.value_dim", shape.value_dim, 0);
  if (shape.num_query_heads % shape.num_kv_heads != 0) {
    refuse("shape.num_kv_heads", "a divisor of num_query_heads " + std::to_string(shape.num_query_heads),
           std::to_string(shape.num_kv_heads));
  }
  if (shape.key_dim == 0) shape.key_dim = shape.head_dim;
  check_size(make_plan_name, "shape.key_dim", shape.key_dim, 1);
  const ScoreDefinition& score = definition(spec.score);
  if (score.has_hidden()) check_size(make_plan_name, "shape.hidden", shape.hidden, 1);
  // A workspace holds a few operands and a few partial sums. With 2^48 elements in each, their bytes fit into
  // 63 bits.
  std::int64_t room = std::int64_t{1} << 48;
  const std::int64_t widest = std::max({shape.head_dim, shape.key_dim, shape.value_dim, shape.hidden});
  for (const std::int64_t size :
       {std::max<std::int64_t>(shape.batch, 1), std::max(shape.num_query_heads, shape.num_kv_heads),
        std::max<std::int64_t>({shape.query_len, shape.key_len, 1}), widest}) {
    if (size > room) {
      refuse("shape", "operands of at most 2^48 elements",
             "a batch of " + std::to_string(shape.batch) + ", " + std::to_string(shape.num_query_heads) +
                 " heads, lengths " + std::to_string(shape.query_len) + " and " +
                 std::to_string(shape.key_len) + ", up to " + std::to_string(widest) + " elements a row");
    }
    room /= size;
  }
  if (!score.has_matrix() && shape.key_dim != shape.head_dim) {
    refuse("shape.key_dim", "head_dim " + std::to_string(shape.head_dim) + " for a dot score",
           std::to_string(shape.key_dim));
  }
  return shape;
}

std::string wanted_kernel(const PlanOptions& options) {
  if (!options.kernel.empty()) return options.kernel;
  const char* environment = std::getenv("FOVEA_ISA");
  return environment ? environment : "";
}

// Checks the numbers of the normaliser, and whether it can give the derivatives and the parts of keys that
// the options require.
void check_normalizer(const AttentionSpec& spec, const PlanOptions& options) {
  const Normalizer& normalizer = spec.normalizer;
  if (const char* taken = refused_number(normalizer))
    refuse("spec.normalizer", taken, shortest(number_of(normalizer)));
  if (options.derivatives == Derivatives::required && derivative_of(normalizer) == WeightDerivative::none)
    refuse(
        "spec.normalizer",
        "a normaliser with a derivative by the scores (the weights of an argmax are constant wherever they "
        "have one; HardSample and GumbelSample estimate it)",
        to_string(normalizer));
  if (options.keys == Keys::all) return;
  if (is_whole_row(normalizer))
    refuse("spec.normalizer",
           "one whose results for parts of the keys can be merged: softmax or sigmoid; the others need whole "
           "rows",
           to_string(normalizer));
  if (const char* reason = no_parts(normalizer))
    refuse("spec.normalizer", std::string("softmax: ") + reason, to_string(normalizer));
  if (definition(spec.score).pair == PairKind::coverage)
    refuse("spec.score", "a score that depends on one query alone: coverage sums the weights of whole rows",
           to_string(spec.score));
  // Forward results of these can be merged. Backward recomputes a row from the keys of one part alone, so it
  // would be wrong.
  if (options.derivatives != Derivatives::required) return;
  for (const Mod& mod : spec.mods) {
    if (mod.node().table_by_query())
      refuse("spec.mods", "mods whose gradient needs no whole row", to_string(mod));
  }
  if (!spec.weight_mods.empty())
    refuse("spec.weight_mods", "none: their gradient needs whole rows", to_string(spec.weight_mods.front()));
}

void set_arguments(AttentionPlan::Impl& plan) {
  const AttentionSpec& spec = plan.spec;
  plan.arguments = declared_arguments(spec);
  for (const DeclaredArgument& argument : plan.arguments)
    plan.gradient_names.push_back("gradients." + argument.name);
  const auto count = [](const Mods& mods) {
    int sum = 0;
    for (const Mod& mod : mods) sum += static_cast<int>(mod.node().arguments().size());
    return sum;
  };
  plan.first_mod_argument = static_cast<int>(definition(spec.score).arguments.size());
  plan.first_normalizer_argument = plan.first_mod_argument + count(spec.mods);
  plan.first_weight_mod_argument =
      plan.first_normalizer_argument + static_cast<int>(arguments(spec.normalizer).size());
}

}  // namespace

const AttentionSpec& AttentionPlan::spec() const noexcept {
  return impl_->spec;
}
const AttentionShape& AttentionPlan::shape() const noexcept {
  return impl_->shape;
}
const std::vector<DeclaredArgument>& AttentionPlan::arguments() const noexcept {
  return impl_->arguments;
}
DType AttentionPlan::dtype() const noexcept {
  return impl_->dtype;
}
std::string_view AttentionPlan::kernel() const noexcept {
  return impl_->choice.rule(impl_->choice.main()).largest().candidate->name;
}
std::string_view AttentionPlan::backward_kernel() const noexcept {
  return impl_->choice.rule(kernels::Duty::backward).largest().candidate->name;
}

bool AttentionPlan::multiplies_16_bits() const noexcept {
  if (size_of(impl_->dtype) != 2) return false;
  const Requests requests = impl_->requests();
  const auto multiplies = [&](kernels::Duty duty) {
    return impl_->choice.multiplies_bf16(requests[static_cast<std::size_t>(duty)]);
  };
  return multiplies(impl_->choice.main()) && multiplies(kernels::Duty::backward);
}

Requests AttentionPlan::Impl::requests() const {
  using kernels::Duty;
  const kernels::Request any{
      .score = score_kind(),
      .dtype = dtype,
      .precision = precision,
      .queries_mapped = !additive() && query_mapped(),
      .keys_mapped = !additive() && key_mapped(),
      .heads_of_a_key = shape.num_query_heads / shape.num_kv_heads,
      .values = shape.value_dim > 0,
      .mods = !spec.mods.empty() || !spec.weight_mods.empty() || counts_keys(spec.normalizer),
      .dropout = spec.dropout.rate > 0,
      .whole_row = whole_row(),
      .parts_of_keys = keys == Keys::part,
      .normalizer = kind_of(spec.normalizer),
      .scale = scale};
  Requests all;
  for (std::size_t n = 0; n < all.size(); ++n) {
    all[n] = any;
    all[n].duty = static_cast<Duty>(n);
  }
  const auto of = [&all](Duty duty) -> kernels::Request& { return all[static_cast<std::size_t>(duty)]; };
  of(Duty::weights_alone).whole_row = of(Duty::backward_of_weights).whole_row = true;
  of(Duty::backward).whole_row = whole_row_backward();
  return all;
}

AttentionPlan make_plan(const AttentionSpec& spec, const AttentionShape& shape, const PlanOptions& options) {
  auto plan = std::make_shared<AttentionPlan::Impl>();
  plan->spec = spec;
  plan->shape = checked_shape(spec, shape);
  plan->dtype = options.dtype;
  plan->keys = options.keys;
  plan->precision = options.precision;
  spec.mask.node().validate(shape);
  if (!(spec.dropout.rate >= 0.0 && spec.dropout.rate < 1.0)) {
    refuse("spec.dropout.rate", "a rate in [0, 1)", shortest(spec.dropout.rate));
  }
  for (const auto& [mods, name] :
       {std::pair(&spec.mods, "spec.mods"), {&spec.weight_mods, "spec.weight_mods"}}) {
    if (mods->size() > kernels::max_given_mods)
      refuse(name, "at most " + std::to_string(kernels::max_given_mods), std::to_string(mods->size()));
  }
  for (std::size_t n = 1; n < spec.mods.size(); ++n) {
    if (spec.mods[n - 1].node().hides() && !spec.mods[n].node().hides())
      refuse("spec.mods[" + std::to_string(n) + "]",
             "a mod that hides keys too, because " + to_string(spec.mods[n - 1]) +
                 " before it makes scores of -infinity",
             to_string(spec.mods[n]));
  }
  const std::int64_t most = std::max({shape.batch, shape.num_query_heads, shape.query_len, shape.key_len});
  if (most > std::int64_t{1} << 30)  // a Site has 32 bits
    refuse("shape", "batch, heads and lengths of at most 2^30", std::to_string(most));
  check_normalizer(spec, options);
  set_arguments(*plan);
  if (spec.scale && !std::isfinite(*spec.scale))
    refuse("spec.scale", "a finite number", std::to_string(*spec.scale));
  const bool scaled = definition(spec.score).scaled_by_dim;
  plan->scale = spec.scale.value_or(scaled ? 1.0 / std::sqrt(static_cast<double>(shape.head_dim)) : 1.0);
  if (plan->dtype != DType::f64 && !std::isfinite(static_cast<float>(plan->scale)))
    refuse("spec.scale", "a number that a float holds", shortest(plan->scale));
  plan->choice = Choice(plan->requests(), plan->shape.query_len, wanted_kernel(options),
                        options.kernel.empty() ? "FOVEA_ISA" : "options.kernel");
  return AttentionPlan(plan);
}

}  // namespace fovea
