// RWKV-7: a decay for each row of the state, and a write of low rank that removes what it replaces.
#include <cmath>

#include "fovea/core/kept_vector.h"
#include "nn/mixers/layer.h"

namespace fovea::nn {
namespace {

// x + (before - x) ∘ µ for each projection, where `before` is the token before.
struct TokenShift {
  Parameter* share = nullptr;  // µ, [dim]
  TokenShift() = default;
  TokenShift(ParameterSet& set, const std::string& name, std::int64_t dim)
      : share(&set.constant(name, {dim}, 0.5f)) {}
  Var operator()(Context& context, const Var& x, const Var& difference) const {
    return add(x, autograd::multiply_groups(difference, context.use(*share)));
  }
};

// Two matrices with few rows between them, and a bias.
struct LowRank {
  Linear down, up;
  LowRank() = default;
  LowRank(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t rank, std::int64_t out,
          Linear::Bias bias)
      : down(plain(set, name + "_down", dim, rank)), up(set, name + "_up", rank, out, bias) {}
};

// Of the paper's appendix: decays from slow to fast over the channels of a head.
void start_decays(ParameterSet& set, const Linear& decay, std::int64_t head_dim) {
  if (set.given()) return;
  float* bias = decay.bias->value.data<float>();
  for (std::int64_t i = 0; i < decay.bias->value.count(); ++i) {
    const float share =
        head_dim == 1 ? 0.0f : static_cast<float>(i % head_dim) / static_cast<float>(head_dim - 1);
    bias[i] = -6.0f + 5.0f * share;
  }
}

class Rwkv7Layer final : public RecurrentMixer::Layer {
 public:
  Rwkv7Layer(ParameterSet& set, const std::string& name, std::int64_t dim, const Rwkv7Options& o)
      : dim_(dim),
        heads_(dim / o.head_dim),
        head_dim_(o.head_dim),
        query_shift_(set, name + ".x_r", dim),
        decay_shift_(set, name + ".x_w", dim),
        key_shift_(set, name + ".x_k", dim),
        value_shift_(set, name + ".x_v", dim),
        rate_shift_(set, name + ".x_a", dim),
        gate_shift_(set, name + ".x_g", dim),
        query_(plain(set, name + ".r_proj", dim, dim)),
        key_(plain(set, name + ".k_proj", dim, dim)),
        value_(plain(set, name + ".v_proj", dim, dim)),
        output_(plain(set, name + ".out_proj", dim, dim)),
        decay_(set, name + ".w", dim, o.rank, dim, Linear::Bias::with),
        rate_(set, name + ".a", dim, o.rank, dim, Linear::Bias::with),
        value_mix_(set, name + ".v", dim, o.rank, dim, Linear::Bias::with),
        gate_(set, name + ".g", dim, o.gate_rank, dim, Linear::Bias::without),
        erased_(&set.constant(name + ".k_k", {dim}, 0.85f)),
        written_(&set.constant(name + ".k_a", {dim}, 1.0f)),
        bonus_(&set.constant(name + ".r_k", {dim}, 0.0f)),
        norm_weight_(&set.constant(name + ".norm.weight", {dim}, 1.0f)),
        norm_bias_(&set.constant(name + ".norm.bias", {dim}, 0.0f)),
        plans_({.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}, .scale = 1.0},
               {.num_query_heads = heads_,
                .num_key_heads = heads_,
                .num_heads = heads_,
                .key_dim = head_dim_,
                .value_dim = head_dim_}),
        part_{heads_, head_dim_, head_dim_},
        before_(DType::f32, {dim, 2}) {
    start_decays(set, decay_.up, head_dim_);
    for (std::int64_t c = 0; c < dim; ++c) {
      before_.data<float>()[2 * c] = 1.0f;
      before_.data<float>()[2 * c + 1] = 0.0f;
    }
  }

  KeptVector<Shape> parts() const override { return {{1, dim_}, part_}; }

  Tensor resting_log_decays() const override {
    Tensor decays(DType::f32, {heads_, head_dim_});
    for (std::int64_t i = 0; i < decays.count(); ++i)
      decays.data<float>()[i] = -std::exp(-0.5f) / (1.0f + std::exp(-decay_.up.bias->value.data<float>()[i]));
    return decays;
  }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    const Var moved = add(token_before(x, tokens), autograd::scale(x, -1.0f));
    const Var r = query_(context, query_shift_(context, x, moved));
    const Var shifted_value = value_shift_(context, x, moved);
    const Var v = mixed_value(context, value_(context, shifted_value), shifted_value, tokens);
    const Var projected = key_(context, key_shift_(context, x, moved));
    const Var shifted_rate = rate_shift_(context, x, moved);
    const Var rate = autograd::sigmoid(rate_.up(context, rate_.down(context, shifted_rate)));
    // κ̂ of unit length is erased, and k is written: both are the key, scaled by channel.
    const Var erased = unit(autograd::multiply_groups(projected, context.use(*erased_)));
    const Var change = add(autograd::multiply(projected, rate), autograd::scale(projected, -1.0f));
    const Var k = add(projected, autograd::multiply_groups(change, context.use(*written_)));
    const Var y = tokens.recur(1, plans_,
                               {.query = r,
                                .key = k,
                                .value = v,
                                .log_decay = log_decay(context, decay_shift_(context, x, moved)),
                                .a = autograd::scale(erased, -1.0f),
                                .b = autograd::multiply(erased, rate)});
    const Var whole = add(normalized(context, y), own_pair(context, r, k, v));
    const Var inner = autograd::sigmoid(gate_.down(context, gate_shift_(context, x, moved)));
    return output_(context, autograd::multiply(whole, gate_.up(context, inner)));
  }

 private:
  Var by_head(const Var& x) const { return reshape(x, {x.size(0), x.size(1), heads_, head_dim_}); }
  Var unit(const Var& x) const { return reshape(autograd::normalize_rows(by_head(x), 1e-12f), x.shape()); }

  Var token_before(const Var& x, const MixerTokens& tokens) const {
    return autograd::causal_conv({.lists = tokens.lists(), .states = tokens.states(0)},
                                 {.x = x, .weight = Var(before_)})
        .output;
  }

  // ln w = -e^(-1/2) σ(w0 + tanh(x W1) W2): a decay of 0.545 at least.
  Var log_decay(Context& context, const Var& x) const {
    const Var inner = autograd::tanh(decay_.down(context, x));
    return autograd::scale(autograd::sigmoid(decay_.up(context, inner)), -std::exp(-0.5f));
  }

  // v + (v of the first layer - v) ∘ σ(v0 + x W1 W2).
  Var mixed_value(Context& context, const Var& v, const Var& x, const MixerTokens& tokens) const {
    Var* first = tokens.call().first_value;
    if (!first) return v;
    if (first->empty()) {
      *first = v;
      return v;
    }
    const Var share = autograd::sigmoid(value_mix_.up(context, value_mix_.down(context, x)));
    return add(v, autograd::multiply(add(*first, autograd::scale(v, -1.0f)), share));
  }

  // A norm for each head, with weights and biases of all channels.
  Var normalized(Context& context, const Var& y) const {
    Tensor ones(DType::f32, {head_dim_});
    ones.fill(1.0);
    const Var rows = reshape(
        autograd::layer_norm(by_head(y), Var(ones), {}, 1e-5f * static_cast<float>(head_dim_)), y.shape());
    const KeptVector<std::int32_t> zeros(static_cast<std::size_t>(y.size(0) * y.size(1)), 0);
    const Var bias = autograd::embedding(reshape(context.use(*norm_bias_), {1, dim_}), zeros);
    return add(autograd::multiply_groups(rows, context.use(*norm_weight_)), reshape(bias, y.shape()));
  }

  // (Σ r ∘ k ∘ r_k) v within each head.
  Var own_pair(Context& context, const Var& r, const Var& k, const Var& v) const {
    Tensor ones(DType::f32, {1, head_dim_});
    ones.fill(1.0);
    const Var products = autograd::multiply_groups(autograd::multiply(r, k), context.use(*bonus_));
    // By row, so that the bits of a sentence do not depend on the batch: many rows go by tiles, whose sums
    // have another order.
    const Var sums = autograd::linear(by_head(products), Var(ones), {}, autograd::Products::by_row);
    return autograd::multiply_groups(v, reshape(sums, {v.size(0), v.size(1), heads_}));
  }

  std::int64_t dim_, heads_, head_dim_;
  TokenShift query_shift_, decay_shift_, key_shift_, value_shift_, rate_shift_, gate_shift_;
  Linear query_, key_, value_, output_;
  LowRank decay_, rate_, value_mix_, gate_;
  Parameter *erased_, *written_, *bonus_, *norm_weight_, *norm_bias_;
  mutable RecurrencePlans plans_;
  Shape part_;
  Tensor before_;  // the taps that give the token before
};

}  // namespace

RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const Rwkv7Options& options) {
  return std::make_unique<Rwkv7Layer>(set, name, dim, options);
}

}  // namespace fovea::nn
