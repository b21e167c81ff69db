// Mamba and Mamba-2: state space models whose steps depend on the token.
#include <cmath>

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
        gate_(plain(set, name + ".z_proj", dim, inner_)),
        input_(plain(set, name + ".xbc_proj", dim, inner_ + 2 * shared_)),
        steps_(set, name + ".dt_proj", dim, heads_),
        conv_(set, name + ".conv1d", inner_ + 2 * shared_, o.conv_width, Linear::Bias::with),
        log_rate_(&set.constant(name + ".A_log", spread_log_rates(heads_))),
        skip_(&set.constant(name + ".D", {heads_}, 1.0f)),
        norm_(&set.constant(name + ".norm.weight", {inner_}, 1.0f)),
        output_(plain(set, name + ".out_proj", inner_, dim)),
        plans_({.decay = ScalarDecay{}, .scale = 1.0}, {.num_query_heads = groups_,
                                                        .num_key_heads = groups_,
                                                        .num_heads = heads_,
                                                        .key_dim = o.state_dim,
                                                        .value_dim = o.head_dim}),
        part_{heads_, o.state_dim, o.head_dim} {
    start_steps(set, steps_);
  }

  std::vector<Shape> parts() const override { return {conv_.part(), part_}; }
  Tensor resting_log_decays() const override {
    return resting_by_rates(log_rate_->value, steps_.bias->value);
  }
  Var run(Context& context, const Var& x, MixerTokens& tokens) const override {
    const Var xbc = conv_(context, input_(context, x), tokens, 0);
    const Var u = columns(xbc, 0, inner_);
    const Var step = autograd::softplus(steps_(context, x));
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
  Var normalized(Context& context, const Var& y) const {
    const Shape flat = y.shape();
    const std::int64_t size = inner_ / groups_;
    Tensor ones(DType::f32, {size});
    ones.fill(1.0);
    const Var rows = autograd::rms_norm(reshape(y, {flat[0], flat[1], groups_, size}), Var(ones), 1e-5f);
    return autograd::multiply_groups(reshape(rows, flat), context.use(*norm_));
  }

  std::int64_t inner_, heads_, groups_, shared_;
  Linear gate_, input_, steps_;
  ShortConv conv_;
  Parameter *log_rate_, *skip_, *norm_;
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
        input_(plain(set, name + ".in_proj", dim, 2 * inner_)),
        conv_(set, name + ".conv1d", inner_, o.conv_width, Linear::Bias::with),
        selection_(plain(set, name + ".x_proj", inner_, rank_ + 2 * states_)),
        steps_(set, name + ".dt_proj", rank_, inner_),
        log_rate_(&set.constant(name + ".A_log", s4d_real(inner_, states_))),
        skip_(&set.constant(name + ".D", {inner_}, 1.0f)),
        output_(plain(set, name + ".out_proj", inner_, dim)) {
    start_steps(set, steps_);
  }

  std::vector<Shape> parts() const override { return {conv_.part(), {inner_, states_}}; }
  Tensor resting_log_decays() const override {
    return resting_by_rates(log_rate_->value, steps_.bias->value);
  }
  Var run(Context& context, const Var& x, MixerTokens& tokens) const override {
    const Var xz = input_(context, x);
    const Var u = conv_(context, columns(xz, 0, inner_), tokens, 0);
    const Var selected = selection_(context, u);
    const Var steps = steps_(context, columns(selected, 0, rank_));
    if (tokens.call().log_decays) *tokens.call().log_decays = mean_by_rates(log_rate_->value, steps.value());
    const autograd::OutputAndState result =
        autograd::selective_scan({.lists = tokens.lists(), .final_state = tokens.wanted()},
                                 {.x = u,
                                  .delta = steps,
                                  .a = autograd::scale(autograd::exp(context.use(*log_rate_)), -1.0f),
                                  .b = columns(selected, rank_, states_),
                                  .c = columns(selected, rank_ + states_, states_),
                                  .d = context.use(*skip_),
                                  .z = columns(xz, inner_, inner_),
                                  .initial_state = tokens.state(1)});
    tokens.keep(1, result.final_state);
    return output_(context, result.output);
  }

 private:
  std::int64_t inner_, states_, rank_;
  Linear input_;
  ShortConv conv_;
  Linear selection_, steps_;
  Parameter *log_rate_, *skip_;
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
