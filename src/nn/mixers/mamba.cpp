// Mamba and Mamba-2: state space models whose steps depend on the token.
#include <cmath>

#include "fovea/core/kept_vector.h"
#include "nn/mixers/layer.h"

namespace fovea::nn {
namespace {

using autograd::Activation;

class Mamba2Layer final : public RecurrentMixer::Layer {
 public:
  Mamba2Layer(ParameterSet& set, const std::string& name, std::int64_t dim, const Mamba2Options& o)
      : inner_(o.inner),
        heads_(o.inner / o.head_dim),
        groups_(o.groups),
        shared_(o.groups * o.state_dim),
        gate_(set, name + ".z_proj", dim, inner_, o.biases),
        input_(set, name + ".xbc_proj", dim, inner_ + 2 * shared_, o.biases),
        steps_(set, name + ".dt_proj", dim, heads_),
        step_bias_(o.biases == Linear::Bias::with ? &set.constant(name + ".dt_bias", {heads_}, 0.0f)
                                                  : nullptr),
        conv_(set, name + ".conv1d", inner_ + 2 * shared_, o.conv_width, o.conv_bias, o.conv_activation),
        log_rate_(&set.constant(name + ".A_log", spread_log_rates(heads_))),
        skip_(&set.constant(name + ".D", {heads_}, 1.0f)),
        norm_(&set.constant(name + ".norm.weight", {inner_}, 1.0f)),
        epsilon_(o.norm_epsilon),
        range_{o.least_step, o.most_step},
        output_(set, name + ".out_proj", inner_, dim, o.biases),
        plans_({.decay = ScalarDecay{}, .scale = 1.0}, {.num_query_heads = groups_,
                                                        .num_key_heads = groups_,
                                                        .num_heads = heads_,
                                                        .key_dim = o.state_dim,
                                                        .value_dim = o.head_dim}),
        part_{heads_, o.state_dim, o.head_dim} {
    start_steps(set, step_bias_ ? *step_bias_ : *steps_.bias);
  }

  KeptVector<Shape> parts() const override { return {conv_.part(), part_}; }
  Tensor resting_log_decays() const override {
    return resting_by_rates(log_rate_->value, (step_bias_ ? step_bias_ : steps_.bias)->value, range_);
  }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    const Var xbc = conv_(context, input_(context, x), tokens, 0);
    const Var u = columns(xbc, 0, inner_);
    const Var free = autograd::softplus(raw_steps(context, x));
    const Var step = range_ == StepRange{} ? free : autograd::clamp(free, range_.least, range_.most);
    const Var rate = autograd::scale(autograd::exp(context.use(*log_rate_)), -1.0f);
    const Var y = tokens.recur(1, plans_,
                               {.query = columns(xbc, inner_ + shared_, shared_),
                                .key = columns(xbc, inner_, shared_),
                                .value = autograd::multiply_groups(u, step),
                                .log_decay = autograd::multiply_groups(step, rate)});
    const Var skipped = add(y, autograd::multiply_groups(u, context.use(*skip_)));
    return output_(context,
                   normalized(context, autograd::gated(Activation::silu, gate_(context, x), skipped)));
  }

 private:
  Var raw_steps(Context& context, const Var& x) const {
    if (!step_bias_) return steps_(context, x);
    // Two biases of the same rows.
    const Var bias = add(context.use(*steps_.bias), context.use(*step_bias_));
    return autograd::linear(x, context.use(*steps_.weight), bias, context.products);
  }
  Var normalized(Context& context, const Var& y) const {
    const Shape flat = y.shape();
    const Var rows = unit_mean_square(reshape(y, {flat[0], flat[1], groups_, inner_ / groups_}), epsilon_);
    return autograd::multiply_groups(reshape(rows, flat), context.use(*norm_));
  }

  std::int64_t inner_, heads_, groups_, shared_;
  Linear gate_, input_, steps_;
  Parameter* step_bias_;
  ShortConv conv_;
  Parameter *log_rate_, *skip_, *norm_;
  float epsilon_;
  StepRange range_;
  Linear output_;
  mutable RecurrencePlans plans_;
  Shape part_;
};

// ln n of 1 to state_dim in every channel: S4D-real, the start of the paper's section 3.6.
Tensor s4d_real(std::int64_t channels, std::int64_t state_dim) {
  Tensor values(DType::f32, {channels, state_dim});
  for (std::int64_t i = 0; i < values.count(); ++i)
    values.data<float>()[i] = std::log(static_cast<float>(i % state_dim + 1));
  return values;
}

class MambaLayer final : public RecurrentMixer::Layer {
 public:
  MambaLayer(ParameterSet& set, const std::string& name, std::int64_t dim, const MambaOptions& o)
      : inner_(o.inner),
        states_(o.state_dim),
        rank_(o.step_rank),
        input_(set, name + ".in_proj", dim, 2 * inner_, o.biases),
        conv_(set, name + ".conv1d", inner_, o.conv_width, o.conv_bias, o.conv_activation),
        selection_(plain(set, name + ".x_proj", inner_, rank_ + 2 * states_)),
        steps_(set, name + ".dt_proj", rank_, inner_),
        log_rate_(&set.constant(name + ".A_log", s4d_real(inner_, states_))),
        skip_(&set.constant(name + ".D", {inner_}, 1.0f)),
        epsilon_(o.selection_epsilon),
        output_(set, name + ".out_proj", inner_, dim, o.biases) {
    start_steps(set, *steps_.bias);
  }

  KeptVector<Shape> parts() const override { return {conv_.part(), {inner_, states_}}; }
  Tensor resting_log_decays() const override {
    return resting_by_rates(log_rate_->value, steps_.bias->value);
  }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    const Var xz = input_(context, x);
    const Var u = conv_(context, columns(xz, 0, inner_), tokens, 0);
    const Var selected = selection_(context, u);
    const auto part = [&](std::int64_t begin, std::int64_t count) {
      const Var rows = columns(selected, begin, count);
      return epsilon_ ? unit_mean_square(rows, *epsilon_) : rows;
    };
    const Var steps = steps_(context, part(0, rank_));
    if (tokens.call().log_decays) *tokens.call().log_decays = mean_by_rates(log_rate_->value, steps.value());
    const Var y =
        autograd::selective_scan({.lists = tokens.lists(), .states = tokens.states(1)},
                                 {.x = u,
                                  .delta = steps,
                                  .a = autograd::scale(autograd::exp(context.use(*log_rate_)), -1.0f),
                                  .b = part(rank_, states_),
                                  .c = part(rank_ + states_, states_),
                                  .d = context.use(*skip_),
                                  .z = columns(xz, inner_, inner_)})
            .output;
    return output_(context, y);
  }

 private:
  std::int64_t inner_, states_, rank_;
  Linear input_;
  ShortConv conv_;
  Linear selection_, steps_;
  Parameter *log_rate_, *skip_;
  std::optional<float> epsilon_;
  Linear output_;
};

}  // namespace

RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const Mamba2Options& options) {
  return std::make_unique<Mamba2Layer>(set, name, dim, options);
}
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const MambaOptions& options) {
  return std::make_unique<MambaLayer>(set, name, dim, options);
}

}  // namespace fovea::nn
