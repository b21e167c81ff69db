// ScalableSoftmax as a mod, so that every kernel with mods can compute it.
#include <cmath>
#include <limits>

#include "fovea/attention/make_mod.h"
#include "plan/call.h"

namespace fovea {
namespace {

// A score of -infinity hides its key, and 0 · -infinity would be NaN.
const Mod& scale_mod() {
  static const Mod mod =
      make_mod("scalable", {"scale", "log_count"}, [](auto score, Site, auto scale, auto log_count) {
        using Number = decltype(score);
        using T = elementwise::Scalar<Number>;
        const Number scaled = score * (scale * log_count);
        return elementwise::where(elementwise::value_of(score) == -std::numeric_limits<T>::infinity(), score,
                                  scaled);
      });
  return mod;
}

// ln n of row `row`, or 0 if the row sees no key. Spans are exact for one query.
template <class T>
T log_count(const kernels::Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t row) {
  const std::int64_t position = kernels::position_of(p, b, row);
  const BlockSpans spans =
      p.mask->node().spans({kernels::entry_of(p, b), h, position, position + 1, p.key_len, p.key_lengths});
  std::int64_t count = 0;
  for (const KeySpan& span : spans.some) count += span.end - span.begin;
  return count > 0 ? static_cast<T>(std::log(static_cast<double>(count))) : T{0};
}

}  // namespace

template <class T>
void multiply_by_counts(const AttentionPlan::Impl& plan, const Call& call, Carver& carver, Executor* executor,
                        kernels::Problem<T>& p) {
  const std::int64_t heads = p.mask->node().by_head() ? p.query_heads : 1, rows = p.query_len;
  T* logs = carver.take<T>(p.batch * heads * rows);
  kernels::ProblemMod<T>& mod = p.mods.add();
  const ModNode& node = scale_mod().node();
  mod.node = &node;
  if constexpr (std::is_same_v<T, float>)
    mod.code = node.code_f32(plan.choice.mods());
  else
    mod.code = node.code_f64(plan.choice.mods());
  mod.count = node.arguments().size();
  p.has_mods = true;
  if (!executor) return;

  constexpr std::int64_t step = 256;  // rows of one task: 10 µs for their spans
  const std::int64_t steps = (rows + step - 1) / step;
  executor->parallel_for(p.batch * heads * steps, [&](std::int64_t task, int) {
    const std::int64_t unit = task / steps, first = task % steps * step;
    for (std::int64_t row = first; row < std::min(first + step, rows); ++row)
      logs[unit * rows + row] = log_count(p, unit / heads, unit % heads, row);
  });
  const int argument = plan.first_normalizer_argument;
  p.count_scale = call.arguments[argument].template data<T>();
  mod.arguments[0] = {.data = p.count_scale, .strides = {0, 1, 0, 0}, .sizes = {1, p.query_heads, 1, 1}};
  if (const TensorView& gradient = call.gradients[argument]) {
    mod.arguments[0].gradient = gradient.template data<T>();
    mod.arguments[0].gradient_strides = {0, 1, 0, 0};
  }
  mod.arguments[1] = {.data = logs,
                      .strides = {heads * rows, heads > 1 ? rows : 0, 1, 0},
                      .sizes = {p.batch, heads, rows, 1}};
}

template void multiply_by_counts<float>(const AttentionPlan::Impl&, const Call&, Carver&, Executor*,
                                        kernels::Problem<float>&);
template void multiply_by_counts<double>(const AttentionPlan::Impl&, const Call&, Carver&, Executor*,
                                         kernels::Problem<double>&);

}  // namespace fovea
