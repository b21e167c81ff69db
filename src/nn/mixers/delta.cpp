// Gated DeltaNet, whose writes replace what the state holds under a key.
#include "fovea/core/kept_vector.h"
#include "nn/mixers/layer.h"

namespace fovea::nn {
namespace {

class GatedDeltaLayer final : public RecurrentMixer::Layer {
 public:
  GatedDeltaLayer(ParameterSet& set, const std::string& name, std::int64_t dim, const GatedDeltaOptions& o)
      : heads_(o.num_heads),
        key_heads_(o.num_key_heads),
        keys_(o.num_key_heads * o.key_dim),
        values_(o.num_heads * o.value_dim),
        input_(plain(set, name + ".qkv_proj", dim, 2 * keys_ + values_)),
        conv_(set, name + ".conv1d", 2 * keys_ + values_, o.conv_width, Linear::Bias::without,
              o.conv_activation),
        beta_(plain(set, name + ".beta_proj", dim, heads_)),
        decay_(set, name + ".decay_proj", dim, heads_),
        log_rate_(&set.constant(name + ".A_log", spread_log_rates(heads_))),
        gate_(plain(set, name + ".gate_proj", dim, values_)),
        norm_(head_norm(set, name + ".norm", o.value_dim, o.norm_epsilon)),
        output_(plain(set, name + ".out_proj", values_, dim)),
        plans_({.decay = ScalarDecay{}, .write = DeltaWrite{}}, {.num_query_heads = key_heads_,
                                                                 .num_key_heads = key_heads_,
                                                                 .num_heads = heads_,
                                                                 .key_dim = o.key_dim,
                                                                 .value_dim = o.value_dim}),
        part_{heads_, o.key_dim, o.value_dim} {
    start_steps(set, *decay_.bias);
  }

  KeptVector<Shape> parts() const override { return {conv_.part(), part_}; }
  Tensor resting_log_decays() const override {
    return resting_by_rates(log_rate_->value, decay_.bias->value);
  }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    const Var qkv = conv_(context, input_(context, x), tokens, 0);
    const Var rate = autograd::scale(autograd::exp(context.use(*log_rate_)), -1.0f);
    const Var y =
        tokens.recur(1, plans_,
                     {.query = unit_heads(columns(qkv, 0, keys_), key_heads_),
                      .key = unit_heads(columns(qkv, keys_, keys_), key_heads_),
                      .value = columns(qkv, 2 * keys_, values_),
                      .log_decay = autograd::multiply_groups(autograd::softplus(decay_(context, x)), rate),
                      .beta = autograd::sigmoid(beta_(context, x))});
    return output_(context, autograd::gated(autograd::Activation::silu, gate_(context, x),
                                            normalized_by_head(context, norm_, y, heads_)));
  }

 private:
  std::int64_t heads_, key_heads_, keys_, values_;
  Linear input_;
  ShortConv conv_;
  Linear beta_, decay_;
  Parameter* log_rate_;
  Linear gate_;
  Norm norm_;
  Linear output_;
  mutable RecurrencePlans plans_;
  Shape part_;
};

}  // namespace

RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const GatedDeltaOptions& options) {
  return std::make_unique<GatedDeltaLayer>(set, name, dim, options);
}

}  // namespace fovea::nn
