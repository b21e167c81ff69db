#include "nn/mixers/layer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "fovea/core/kept_vector.h"

namespace fovea::nn {
namespace {

// Up to so many tokens a plan takes the kernel that goes token by token. Its bits differ from those of chunks
// in rounding, so the number of a sequence's own tokens decides, not that of its neighbours.
constexpr std::int64_t most_steps = 4;

std::int64_t planned_len(std::int64_t len) {
  if (len <= most_steps) return most_steps;
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(len, 16))));
}

}  // namespace

RecurrencePlan RecurrencePlans::of(std::int64_t sequences, std::int64_t len) {
  RecurrenceShape wanted = shape_;
  wanted.batch = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(sequences, 1))));
  wanted.len = planned_len(len);
  const std::lock_guard lock(mutex_);
  for (auto plan = plans_.begin(); plan != plans_.end(); ++plan) {
    if (*plan && (*plan)->shape().batch == wanted.batch && (*plan)->shape().len == wanted.len) {
      std::rotate(plans_.begin(), plan, plan + 1);
      return *plans_.front();
    }
  }
  std::rotate(plans_.begin(), plans_.end() - 1, plans_.end());
  plans_.front() = make_recurrence_plan(spec_, wanted);
  return *plans_.front();
}

MixerTokens::MixerTokens(const RecurrentMixer::Call& call, std::span<const Shape> parts, std::int64_t batch)
    : call_(call) {
  if (!keeps()) return;
  const std::int64_t sequences = call.starts.empty() ? batch : std::ssize(call.starts) - 1;
  if (std::ssize(call.states) != sequences)
    throw InvalidArgument("RecurrentMixer", "call.states",
                          std::to_string(sequences) + ", one for each sequence, or none",
                          std::to_string(call.states.size()));
  std::int64_t size = 0;
  for (const Shape& part : parts) size += part.count();
  const auto expect_state = [&](std::size_t n, const char* member, const ConstTensorView& view) {
    if (!(view.shape() == Shape{size}) || view.dtype() != DType::f32 || !view.contiguous() || !view.raw())
      throw InvalidArgument("RecurrentMixer", "call.states[" + std::to_string(n) + "]." + member,
                            "f32 " + to_string(Shape{size}) + ", contiguous",
                            std::string(to_string(view.dtype())) + " " + to_string(view.shape()));
  };
  for (std::size_t n = 0; n < call.states.size(); ++n) {
    const RecurrentMixer::State& state = call.states[n];
    if (state.before) expect_state(n, "before", state.before);
    expect_state(n, "behind", state.behind);
  }
  std::int64_t begin = 0;
  for (const Shape& part : parts) {
    for (const RecurrentMixer::State& state : call.states) {
      before_.push_back(state.before ? ConstTensorView(state.before.data<float>() + begin, part)
                                     : ConstTensorView());
      behind_.emplace_back(state.behind.data<float>() + begin, part);
    }
    begin += part.count();
  }
}

autograd::KeptStates MixerTokens::states(std::size_t part) const {
  const std::size_t count = call_.states.size();
  return {std::span(before_).subspan(part * count, count), std::span(behind_).subspan(part * count, count)};
}

namespace {

// Sequences [begin, end) of a packed batch that all take steps, or all take chunks.
struct Run {
  std::size_t begin = 0, end = 0;
};

KeptVector<Run> runs_of(std::span<const std::int64_t> starts) {
  KeptVector<Run> runs;
  bool steps = false;
  for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
    const bool few = starts[n + 1] - starts[n] <= most_steps;
    if (runs.empty() || few != steps) runs.push_back({n, n});
    runs.back().end = n + 1;
    steps = few;
  }
  return runs;
}

using Operands = autograd::RecurrenceOperands;

// The recurrence of some sequences.
Var recur_some(RecurrencePlans& plans, const Operands& operands, std::span<const std::int64_t> starts,
               const autograd::KeptStates& states) {
  std::int64_t sequences = operands.key.size(0), longest = operands.key.size(1);
  if (!starts.empty()) {
    sequences = std::ssize(starts) - 1;
    longest = 0;
    for (std::size_t n = 1; n < starts.size(); ++n) longest = std::max(longest, starts[n] - starts[n - 1]);
  }
  const RecurrenceShape& shape = plans.shape();
  return autograd::recurrence({.num_query_heads = shape.num_query_heads,
                               .num_key_heads = shape.num_key_heads,
                               .num_heads = shape.num_heads,
                               .lists = {.starts = starts},
                               .states = states,
                               .plan = plans.of(sequences, longest)},
                              operands)
      .output;
}

// The operands of rows [first, first + count).
Operands part_of(const Operands& all, std::int64_t first, std::int64_t count) {
  Operands part = all;
  for (Var Operands::*operand :
       {&Operands::query, &Operands::key, &Operands::value, &Operands::log_decay, &Operands::beta,
        &Operands::erase, &Operands::a, &Operands::b, &Operands::self_weight}) {
    const Var& x = all.*operand;
    if (!x.empty() && x.shape().rank() == 3) part.*operand = autograd::slice(x, 1, first, count);
  }
  return part;
}

// log_decay [heads] or [B, L, heads * rows of a state] -> [heads].
Tensor mean_by_head(const Tensor& log_decay, std::int64_t heads) {
  const std::int64_t each = log_decay.shape().rank() == 1 ? 1 : log_decay.size(2) / heads,
                     tokens = log_decay.count() / (heads * each);
  Tensor mean(DType::f32, {heads});
  for (std::int64_t h = 0; h < heads; ++h) {
    double sum = 0.0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < each; ++i) sum += log_decay.data<float>()[(t * heads + h) * each + i];
    }
    mean.data<float>()[h] = static_cast<float>(sum / static_cast<double>(tokens * each));
  }
  return mean;
}

}  // namespace

Var MixerTokens::recur(std::size_t part, RecurrencePlans& plans, const Operands& operands) const {
  if (call_.weights)
    *call_.weights = autograd::recurrence_weights({.spec = plans.spec(),
                                                   .num_query_heads = plans.shape().num_query_heads,
                                                   .num_key_heads = plans.shape().num_key_heads,
                                                   .num_heads = plans.shape().num_heads},
                                                  operands);
  if (call_.log_decays && !operands.log_decay.empty())
    *call_.log_decays = mean_by_head(operands.log_decay.value(), plans.shape().num_heads);
  const autograd::KeptStates kept = states(part);
  const KeptVector<Run> runs = keeps() ? runs_of(call_.starts) : KeptVector<Run>();
  if (runs.size() < 2) return recur_some(plans, operands, call_.starts, kept);
  KeptVector<Var> outputs;
  for (const Run& run : runs) {
    const std::int64_t first = call_.starts[run.begin], count = call_.starts[run.end] - first;
    KeptVector<std::int64_t> starts;
    for (std::size_t n = run.begin; n <= run.end; ++n) starts.push_back(call_.starts[n] - first);
    const std::size_t sequences = run.end - run.begin;
    outputs.push_back(
        recur_some(plans, part_of(operands, first, count), starts,
                   {kept.initial.subspan(run.begin, sequences), kept.final.subspan(run.begin, sequences)}));
  }
  return autograd::concat(outputs, 1);
}

ShortConv::ShortConv(ParameterSet& set, const std::string& name, std::int64_t channels, std::int64_t width,
                     Linear::Bias with_bias, autograd::Activation activation)
    // The deviation of PyTorch's start of a convolution, uniform in ±1/sqrt(width).
    : weight(&set.normal(name + ".weight", {channels, width},
                         1.0f / std::sqrt(3.0f * static_cast<float>(width)))),
      bias(with_bias == Linear::Bias::with ? &set.constant(name + ".bias", {channels}, 0.0f) : nullptr),
      activation(activation) {}

Var ShortConv::operator()(Context& context, const Var& x, const MixerTokens& tokens, std::size_t part) const {
  const bool silu = activation == autograd::Activation::silu;  // computed with the sums
  const Var output = autograd::causal_conv(
                         {.activation = silu ? ConvActivation::silu : ConvActivation::none,
                          .lists = tokens.lists(),
                          .states = tokens.states(part)},
                         {.x = x, .weight = context.use(*weight), .bias = bias ? context.use(*bias) : Var()})
                         .output;
  return silu ? output : autograd::activate(activation, output);
}

Var unit_heads(const Var& x, std::int64_t heads) {
  const Shape flat = x.shape();
  const std::int64_t dim = flat[2] / heads;
  const auto size = static_cast<float>(dim);
  Tensor gamma(DType::f32, {dim});
  gamma.fill(1.0 / std::sqrt(static_cast<double>(dim)));
  return reshape(autograd::rms_norm(reshape(x, {flat[0], flat[1], heads, dim}), Var(gamma), 1e-6f / size),
                 flat);
}

Var normalized_by_head(Context& context, const Norm& norm, const Var& x, std::int64_t heads) {
  const Shape flat = x.shape();
  return reshape(norm(context, reshape(x, {flat[0], flat[1], heads, flat[2] / heads})), flat);
}

Norm head_norm(ParameterSet& set, const std::string& name, std::int64_t dim, float epsilon) {
  return Norm(set, name, dim, {.kind = NormSpec::Kind::rms, .epsilon = epsilon});
}

Var unit_mean_square(const Var& x, float epsilon) {
  Tensor ones(DType::f32, {x.size(-1)});
  ones.fill(1.0);
  return autograd::rms_norm(x, Var(ones), epsilon);
}

namespace {

// `count` numbers from `first` to `last` in geometric steps; one is `first`.
template <class Function>
Tensor spread(std::int64_t count, double first, double last, Function&& function) {
  Tensor values(DType::f32, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = count == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(count - 1);
    values.data<float>()[i] = static_cast<float>(function(first * std::pow(last / first, share)));
  }
  return values;
}

}  // namespace

Tensor spread_log_rates(std::int64_t count) {
  return spread(count, 1.0, 16.0, [](double rate) { return std::log(rate); });
}
Tensor spread_steps(std::int64_t count) {
  return spread(count, 1e-3, 0.1, [](double step) { return std::log(std::expm1(step)); });
}
float softplus(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
}
Tensor resting_by_rates(const Tensor& log_rates, const Tensor& step_biases, const StepRange& range) {
  const std::int64_t channels = step_biases.count(), each = log_rates.count() / channels;
  Tensor decays(DType::f32, {channels, each});
  for (std::int64_t i = 0; i < decays.count(); ++i) {
    const float step = std::clamp(softplus(step_biases.data<float>()[i / each]), range.least, range.most);
    decays.data<float>()[i] = -std::exp(log_rates.data<float>()[i]) * step;
  }
  return decays;
}
Tensor mean_by_rates(const Tensor& log_rates, const Tensor& steps) {
  const std::int64_t channels = log_rates.size(0), each = log_rates.size(1),
                     tokens = steps.count() / channels;
  KeptVector<double> sums(static_cast<std::size_t>(channels));
  for (std::int64_t i = 0; i < steps.count(); ++i)
    sums[static_cast<std::size_t>(i % channels)] += softplus(steps.data<float>()[i]);
  Tensor decays(DType::f32, {channels, each});
  for (std::int64_t i = 0; i < decays.count(); ++i)
    decays.data<float>()[i] =
        -std::exp(log_rates.data<float>()[i]) *
        static_cast<float>(sums[static_cast<std::size_t>(i / each)] / static_cast<double>(tokens));
  return decays;
}
void start_steps(ParameterSet& set, Parameter& bias) {
  if (set.given()) return;
  const Tensor start = spread_steps(bias.value.count());
  std::copy_n(start.data<float>(), start.count(), bias.value.data<float>());
}

}  // namespace fovea::nn
