// Layers that add to their state: linear attention, Performer, retention and gated linear attention.
#include <cmath>

#include "fovea/core/kept_vector.h"
#include "nn/mixers/layer.h"

namespace fovea::nn {
namespace {

using autograd::Activation;

RecurrenceShape heads_shape(std::int64_t heads, std::int64_t key_dim, std::int64_t value_dim) {
  return {.num_query_heads = heads,
          .num_key_heads = heads,
          .num_heads = heads,
          .key_dim = key_dim,
          .value_dim = value_dim};
}

// The projections that all of them have.
struct Projections {
  Linear query, key, value, output;
  Projections(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t keys,
              std::int64_t values)
      : query(plain(set, name + ".q_proj", dim, keys)),
        key(plain(set, name + ".k_proj", dim, keys)),
        value(plain(set, name + ".v_proj", dim, values)),
        output(plain(set, name + ".out_proj", values, dim)) {}
};

class LinearAttentionLayer final : public RecurrentMixer::Layer {
 public:
  LinearAttentionLayer(ParameterSet& set, const std::string& name, std::int64_t dim,
                       const LinearAttentionOptions& o)
      : projections_(set, name, dim, o.num_heads * o.key_dim, o.num_heads * o.value_dim),
        plans_({.feature_map = EluPlusOne{}, .normalizer = KeySum{.epsilon = o.epsilon}, .scale = 1.0},
               heads_shape(o.num_heads, o.key_dim, o.value_dim)),
        part_{o.num_heads, o.key_dim, o.value_dim + 1} {}

  KeptVector<Shape> parts() const override { return {part_}; }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    return projections_.output(context, tokens.recur(0, plans_,
                                                     {.query = projections_.query(context, x),
                                                      .key = projections_.key(context, x),
                                                      .value = projections_.value(context, x)}));
  }

 private:
  Projections projections_;
  mutable RecurrencePlans plans_;
  Shape part_;
};

class PerformerLayer final : public RecurrentMixer::Layer {
 public:
  PerformerLayer(ParameterSet& set, const std::string& name, std::int64_t dim, const PerformerOptions& o)
      : projections_(set, name, dim, o.num_heads * o.key_dim, o.num_heads * o.value_dim),
        plans_({.normalizer = KeySum{.epsilon = o.epsilon}, .scale = 1.0},
               heads_shape(o.num_heads, o.features, o.value_dim)),
        part_{o.num_heads, o.features, o.value_dim + 1},
        random_(favor_projection(o.features, o.key_dim, o.projection_seed)) {}

  KeptVector<Shape> parts() const override { return {part_}; }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    const auto features = [&](const Linear& projection) {
      return autograd::favor_features({}, projection(context, x), random_, part_[0]);
    };
    return projections_.output(context, tokens.recur(0, plans_,
                                                     {.query = features(projections_.query),
                                                      .key = features(projections_.key),
                                                      .value = projections_.value(context, x)}));
  }

 private:
  Projections projections_;
  mutable RecurrencePlans plans_;
  Shape part_;
  Tensor random_;
};

// The end of retention and of gated linear attention: a norm by head, a gate, the output projection.
struct GatedEnd {
  Linear gate;
  Norm norm;
  std::int64_t heads = 1;
  GatedEnd(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t num_heads,
           std::int64_t value_dim)
      : gate(plain(set, name + ".gate_proj", dim, num_heads * value_dim)),
        norm(head_norm(set, name + ".norm", value_dim)),
        heads(num_heads) {}
  Var operator()(Context& context, const Var& x, const Var& y) const {
    return autograd::gated(Activation::silu, gate(context, x), normalized_by_head(context, norm, y, heads));
  }
};

class RetentionLayer final : public RecurrentMixer::Layer {
 public:
  RetentionLayer(ParameterSet& set, const std::string& name, std::int64_t dim, const RetentionOptions& o)
      : projections_(set, name, dim, o.num_heads * o.key_dim, o.num_heads * o.value_dim),
        end_(set, name, dim, o.num_heads, o.value_dim),
        rope_(o.rope),
        plans_({.decay = ConstantDecay{}}, heads_shape(o.num_heads, o.key_dim, o.value_dim)),
        part_{o.num_heads, o.key_dim, o.value_dim},
        log_decay_(DType::f32, {o.num_heads}) {
    for (std::int64_t h = 0; h < o.num_heads; ++h)
      log_decay_.data<float>()[h] = static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(h))));
  }

  KeptVector<Shape> parts() const override { return {part_}; }
  Tensor resting_log_decays() const override { return log_decay_.clone().reshape({part_[0], 1}); }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    const Var y = tokens.recur(0, plans_,
                               {.query = rotated(projections_.query(context, x), tokens.call()),
                                .key = rotated(projections_.key(context, x), tokens.call()),
                                .value = projections_.value(context, x),
                                .log_decay = log_decay_});
    return projections_.output(context, end_(context, x, y));
  }

 private:
  Var rotated(const Var& x, const RecurrentMixer::Call& call) const {
    if (!rope_) return x;
    const bool packed = !call.starts.empty();
    const std::size_t sequences = packed ? call.starts.size() - 1 : static_cast<std::size_t>(x.size(0));
    KeptVector<std::int64_t> first(call.first.begin(), call.first.end());
    if (first.empty()) first.resize(sequences, 0);
    std::int64_t end = 0;
    for (std::size_t n = 0; n < sequences; ++n)
      end = std::max(end, first[n] + (packed ? call.starts[n + 1] - call.starts[n] : x.size(1)));
    const RopeTable table = rope_->table(end);
    return packed ? autograd::rotate_packed(x, table, part_[0], call.starts, first)
                  : autograd::rotate(x, table, part_[0], first);
  }

  Projections projections_;
  GatedEnd end_;
  std::optional<Rotary> rope_;
  mutable RecurrencePlans plans_;
  Shape part_;
  Tensor log_decay_;
};

class GatedLinearAttentionLayer final : public RecurrentMixer::Layer {
 public:
  GatedLinearAttentionLayer(ParameterSet& set, const std::string& name, std::int64_t dim,
                            const GatedLinearAttentionOptions& o)
      : projections_(set, name, dim, o.num_heads * o.key_dim, o.num_heads * o.value_dim),
        end_(set, name, dim, o.num_heads, o.value_dim),
        down_(plain(set, name + ".decay_down", dim, o.gate_rank)),
        up_(set, name + ".decay_up", o.gate_rank, o.num_heads * o.key_dim),
        divisor_(o.gate_divisor),
        plans_({.decay = KeyDecay{}}, heads_shape(o.num_heads, o.key_dim, o.value_dim)),
        part_{o.num_heads, o.key_dim, o.value_dim} {}

  KeptVector<Shape> parts() const override { return {part_}; }
  Tensor resting_log_decays() const override {
    Tensor decays(DType::f32, {part_[0], part_[1]});
    for (std::int64_t i = 0; i < decays.count(); ++i)
      decays.data<float>()[i] = -softplus(-up_.bias->value.data<float>()[i]) / divisor_;
    return decays;
  }
  Var run(Context& context, const Var& x, const MixerTokens& tokens) const override {
    // ln σ(y) = -softplus(-y)
    const Var gate = autograd::softplus(autograd::scale(up_(context, down_(context, x)), -1.0f));
    const Var y = tokens.recur(0, plans_,
                               {.query = projections_.query(context, x),
                                .key = projections_.key(context, x),
                                .value = projections_.value(context, x),
                                .log_decay = autograd::scale(gate, -1.0f / divisor_)});
    return projections_.output(context, end_(context, x, y));
  }

 private:
  Projections projections_;
  GatedEnd end_;
  Linear down_, up_;
  float divisor_;
  mutable RecurrencePlans plans_;
  Shape part_;
};

}  // namespace

RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const LinearAttentionOptions& options) {
  return std::make_unique<LinearAttentionLayer>(set, name, dim, options);
}
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const PerformerOptions& options) {
  return std::make_unique<PerformerLayer>(set, name, dim, options);
}
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const RetentionOptions& options) {
  return std::make_unique<RetentionLayer>(set, name, dim, options);
}
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const GatedLinearAttentionOptions& options) {
  return std::make_unique<GatedLinearAttentionLayer>(set, name, dim, options);
}

}  // namespace fovea::nn
