#include "fovea/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "plan/impl.h"

namespace fovea {
namespace {

constexpr const char* function = "make_plan";

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& got) {
  throw InvalidArgument(function, argument, expected, got);
}

void at_least(std::int64_t value, std::int64_t least, const char* argument) {
  // 2^40 elements an axis keeps every product of two sizes inside 64 bits.
  if (value < least || value > (std::int64_t{1} << 40)) {
    refuse(argument, "a size of at least " + std::to_string(least) + " and at most 2^40",
           std::to_string(value));
  }
}

AttentionShape checked_shape(const AttentionSpec& spec, AttentionShape shape) {
  at_least(shape.batch, 0, "shape.batch");
  at_least(shape.num_query_heads, 1, "shape.num_query_heads");
  at_least(shape.num_kv_heads, 1, "shape.num_kv_heads");
  at_least(shape.query_len, 0, "shape.query_len");
  at_least(shape.key_len, 0, "shape.key_len");
  at_least(shape.head_dim, 1, "shape.head_dim");
  at_least(shape.value_dim, 1, "shape.value_dim");
  if (shape.num_query_heads % shape.num_kv_heads != 0) {
    refuse("shape.num_kv_heads", "a divisor of num_query_heads " + std::to_string(shape.num_query_heads),
           std::to_string(shape.num_kv_heads));
  }
  if (shape.key_dim == 0) shape.key_dim = shape.head_dim;
  at_least(shape.key_dim, 1, "shape.key_dim");
  const bool additive = std::holds_alternative<Additive>(spec.score);
  if (additive) at_least(shape.hidden, 1, "shape.hidden");
  if (!additive && !std::holds_alternative<Bilinear>(spec.score) && shape.key_dim != shape.head_dim) {
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

void choose(AttentionPlan::Impl& plan, const std::string& wanted, const char* argument) {
  std::string names;
  bool known = wanted.empty();
  for (const kernels::KernelTable* table : kernels::candidates()) {
    names += (names.empty() ? "" : ", ") + std::string(table->isa);
    if (!wanted.empty() && wanted != table->isa) continue;
    known = true;
    const char* reason =
        !table->supported()
            ? "this CPU lacks the instructions"
            : table->refuse(plan.additive() ? kernels::ScoreKind::additive : kernels::ScoreKind::dot,
                            plan.dtype, plan.score_dim(), plan.shape.value_dim);
    if (!reason) {
      plan.kernel = table;
      return;
    }
    plan.refusals.push_back(std::string(table->name) + ": " + reason);
  }
  if (!known) refuse(argument, "one of " + names, "'" + wanted + "'");
  refuse(argument, "a kernel that can run here", plan.refusals.empty() ? "none" : plan.refusals.back());
}

std::string score_name(const Score& score) {
  static constexpr const char* names[] = {"scaled-dot", "dot", "bilinear", "additive"};
  return names[score.index()];
}

// Shares of the tiles, by the block sizes of the fused kernels.
std::string tile_share(const AttentionPlan::Impl& plan) {
  constexpr std::int64_t rows = 64, keys = 128;
  const AttentionShape& shape = plan.shape;
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(shape.batch), shape.key_len);
  std::int64_t count[3] = {}, offset = shape.key_len - shape.query_len;
  for (std::int64_t b = 0; b < std::min<std::int64_t>(shape.batch, 1); ++b) {
    for (std::int64_t row = 0; row < shape.query_len; row += rows) {
      const QueryBlock block{b, row + offset, std::min(row + rows, shape.query_len) + offset, shape.key_len,
                             lengths};
      const BlockSpans spans = plan.spec.mask.node().spans(block);
      for (std::int64_t key = 0; key < shape.key_len; key += keys) {
        ++count[static_cast<int>(classify(spans, key, std::min(key + keys, shape.key_len)))];
      }
    }
  }
  const std::int64_t total = std::max<std::int64_t>(count[0] + count[1] + count[2], 1);
  const auto percent = [total](std::int64_t n) {
    return std::to_string((100 * n + total / 2) / total) + " %";
  };
  return "tiles of 64 queries x 128 keys: " + percent(count[0]) + " skipped, " + percent(count[1]) +
         " partial, " + percent(count[2]) + " full";
}

}  // namespace

const AttentionSpec& AttentionPlan::spec() const noexcept {
  return impl_->spec;
}
const AttentionShape& AttentionPlan::shape() const noexcept {
  return impl_->shape;
}
DType AttentionPlan::dtype() const noexcept {
  return impl_->dtype;
}
std::string_view AttentionPlan::kernel() const noexcept {
  return impl_->kernel->name;
}

AttentionPlan make_plan(const AttentionSpec& spec, const AttentionShape& shape, const PlanOptions& options) {
  auto plan = std::make_shared<AttentionPlan::Impl>();
  plan->spec = spec;
  plan->shape = checked_shape(spec, shape);
  plan->dtype = options.dtype;
  spec.mask.node().validate(shape.batch, shape.key_len);
  if (!(spec.dropout.rate >= 0.0 && spec.dropout.rate < 1.0)) {
    refuse("spec.dropout.rate", "a rate in [0, 1)", std::to_string(spec.dropout.rate));
  }
  if (spec.scale && !std::isfinite(*spec.scale))
    refuse("spec.scale", "a finite number", std::to_string(*spec.scale));
  const bool scaled = std::holds_alternative<ScaledDot>(spec.score);
  plan->scale = spec.scale.value_or(scaled ? 1.0 / std::sqrt(static_cast<double>(shape.head_dim)) : 1.0);
  choose(*plan, wanted_kernel(options), options.kernel.empty() ? "FOVEA_ISA" : "options.kernel");
  return AttentionPlan(plan);
}

std::string explain(const AttentionPlan& plan) {
  const AttentionPlan::Impl& impl = plan.impl();
  const AttentionShape& s = impl.shape;
  std::string text = impl.kernel->name;
  for (const std::string& refusal : impl.refusals) text += "; refused " + refusal;
  text += "\n" + score_name(impl.spec.score) + " x " + std::to_string(impl.scale) + " -> " +
          to_string(impl.spec.mask) + " -> softmax";
  if (impl.spec.dropout.rate > 0) text += " -> dropout " + std::to_string(impl.spec.dropout.rate);
  text += "\nbatch " + std::to_string(s.batch) + ", heads " + std::to_string(s.num_query_heads) + "/" +
          std::to_string(s.num_kv_heads) + ", queries " + std::to_string(s.query_len) + ", keys " +
          std::to_string(s.key_len) + ", head_dim " + std::to_string(s.head_dim) + ", value_dim " +
          std::to_string(s.value_dim) + ", " + std::string(to_string(impl.dtype));
  return text + "\n" + tile_share(impl);
}

std::vector<KernelInfo> list_kernels() {
  std::vector<KernelInfo> list;
  for (const kernels::KernelTable* table : kernels::candidates())
    list.push_back({table->name, table->supported()});
  return list;
}

}  // namespace fovea
