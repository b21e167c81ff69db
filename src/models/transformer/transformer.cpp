#include "fovea/models/transformer.h"

#include <cmath>
#include <functional>

#include "fovea/nn/layers.h"
#include "models/configs.h"
#include "models/rows.h"

namespace fovea::models {
namespace {

using nn::Context;
using nn::Var;

struct FeedForward {
  nn::Linear first, second;
  FeedForward() = default;
  FeedForward(nn::ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t inner)
      : first(set, name + ".fc1", dim, inner), second(set, name + ".fc2", inner, dim) {}
  Var operator()(Context& context, const Var& x) const { return second(context, relu(first(context, x))); }
};

struct EncoderLayer {
  nn::MultiHeadAttention self;
  nn::LayerNorm self_norm, final_norm;
  FeedForward feed_forward;
};

struct DecoderLayer {
  nn::MultiHeadAttention self, cross;
  nn::LayerNorm self_norm, cross_norm, final_norm;
  FeedForward feed_forward;
};

struct TransformerState final : DecoderState {
  std::vector<nn::ProjectedKeys> self, cross;  // one a layer
  std::vector<std::int64_t> source_row;

  std::unique_ptr<DecoderState> clone() const override {
    auto copy = std::make_unique<TransformerState>(*this);
    for (nn::ProjectedKeys& keys : copy->self) {
      if (keys.length > 0)
        keys = {keys.key.clone(), keys.value.clone(), keys.length};  // appended to in place
    }
    return copy;
  }
  std::int64_t bytes() const override {
    std::size_t total = 0;
    for (const auto* layers : {&self, &cross}) {
      for (const nn::ProjectedKeys& keys : *layers) {
        const auto row = static_cast<std::size_t>(keys.key.size(0) * keys.length) * sizeof(float);
        total += row * static_cast<std::size_t>(keys.key.size(2) + keys.value.size(2));
      }
    }
    return static_cast<std::int64_t>(total);
  }
  void reorder(std::span<const std::int64_t> index) override {
    check_index(index, rows);
    if (is_identity(index, rows)) return;
    std::vector<std::int64_t> sources, lengths;
    for (const std::int64_t i : index) {
      sources.push_back(source_row[static_cast<std::size_t>(i)]);
      lengths.push_back(source_lengths[static_cast<std::size_t>(i)]);
    }
    const auto gather = [&](nn::ProjectedKeys& keys) {
      keys.key = gather_entries(keys.key, index, keys.length);
      keys.value = gather_entries(keys.value, index, keys.length);
    };
    for (nn::ProjectedKeys& keys : self) gather(keys);
    if (sources != source_row) {
      for (nn::ProjectedKeys& keys : cross) gather(keys);
    }
    alignment = gather_entries(alignment, index);
    source_row = std::move(sources);
    source_lengths = std::move(lengths);
    rows = static_cast<std::int64_t>(index.size());
  }
};

class TransformerModel final : public SequenceToSequence {
 public:
  TransformerModel(const TransformerConfig& config, std::uint64_t seed)
      : SequenceToSequence(seed), config_(config) {
    nn::ParameterSet& set = parameters();
    embedding_ = nn::Embedding(set, "model.shared", config.vocabulary, config.dim);
    const auto attention = [&](const std::string& name) {
      return nn::MultiHeadAttention(set, name, config.dim, config.heads, config.attention_dropout);
    };
    const auto norm = [&](const std::string& name) { return nn::LayerNorm(set, name, config.dim); };
    for (std::int64_t i = 0; i < config.encoder_layers; ++i) {
      const std::string name = "model.encoder.layers." + std::to_string(i);
      encoder_.push_back({attention(name + ".self_attn"), norm(name + ".self_attn_layer_norm"),
                          norm(name + ".final_layer_norm"),
                          FeedForward(set, name, config.dim, config.feed_forward)});
    }
    for (std::int64_t i = 0; i < config.decoder_layers; ++i) {
      const std::string name = "model.decoder.layers." + std::to_string(i);
      decoder_.push_back({attention(name + ".self_attn"), attention(name + ".encoder_attn"),
                          norm(name + ".self_attn_layer_norm"), norm(name + ".encoder_attn_layer_norm"),
                          norm(name + ".final_layer_norm"),
                          FeedForward(set, name, config.dim, config.feed_forward)});
    }
    if (config.norm == NormPlace::pre) {
      encoder_norm_ = norm("model.encoder.layer_norm");
      decoder_norm_ = norm("model.decoder.layer_norm");
    }
    output_bias_ = &set.constant("final_logits_bias", {config.vocabulary}, 0.0f);
  }

  std::string config() const override { return write_config(config_); }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  bool attends() const override { return true; }
  Var output_weight(Context& context) override { return context.use(*embedding_.table); }
  Var output_bias(Context& context) override { return context.use(*output_bias_); }

  Var hidden(Context& context, const Batch& batch, Capture* capture, std::int64_t* evaluations) override {
    const Var memory = encode(context, batch.source, batch.size, batch.source_len, batch.source_lengths,
                              capture, evaluations);
    Var x = embed(context, batch.target_input, batch.size, batch.target_len, 0);
    for (std::size_t i = 0; i < decoder_.size(); ++i) {
      const DecoderLayer& layer = decoder_[i];
      x = residual(context, layer.self_norm, x, [&](const Var& y) {
        return layer.self(context, y, y, {.mask = Causal{}, .weights = slot(capture, "decoder.self", i)});
      });
      x = residual(context, layer.cross_norm, x, [&](const Var& y) {
        return layer.cross(context, y, memory,
                           {.mask = KeyLengths{},
                            .key_lengths = batch.source_lengths,
                            .weights = slot(capture, "decoder.cross", i)});
      });
      x = residual(context, layer.final_norm, x,
                   [&](const Var& y) { return layer.feed_forward(context, y); });
    }
    if (config_.norm == NormPlace::pre) x = decoder_norm_(context, x);
    if (evaluations) {
      const std::int64_t t = batch.target_len;
      for (const std::int64_t length : batch.source_lengths) {
        *evaluations += config_.heads * config_.decoder_layers * (t * (t + 1) / 2 + t * length);
      }
    }
    return reshape(x, {batch.size * batch.target_len, config_.dim});
  }

  std::unique_ptr<DecoderState> start(std::span<const std::int32_t> source, std::int64_t source_len,
                                      std::span<const std::int64_t> lengths) override {
    Context context;
    auto state = std::make_unique<TransformerState>();
    state->rows = static_cast<std::int64_t>(lengths.size());
    state->source_len = source_len;
    state->source_lengths.assign(lengths.begin(), lengths.end());
    for (std::int64_t i = 0; i < state->rows; ++i) state->source_row.push_back(i);
    const Var memory =
        encode(context, source, state->rows, source_len, lengths, nullptr, &state->score_evaluations);
    state->self.resize(decoder_.size());
    state->cross.resize(decoder_.size());
    for (std::size_t i = 0; i < decoder_.size(); ++i)
      decoder_[i].cross.append(context, memory, state->cross[i], source_len);
    return state;
  }

  Var advance(DecoderState& base, std::span<const std::int32_t> previous) override {
    auto& s = static_cast<TransformerState&>(base);
    Context context;
    Var x = embed(context, previous, s.rows, 1, s.steps);
    Capture capture;
    capture.scope = Capture::Scope::alignment;
    for (std::size_t i = 0; i < decoder_.size(); ++i) {
      const DecoderLayer& layer = decoder_[i];
      x = residual(context, layer.self_norm, x, [&](const Var& y) {
        layer.self.append(context, y, s.self[i], 32);
        return layer.self.attend_projected(context, y, s.self[i], {.mask = Everything{}});
      });
      x = residual(context, layer.cross_norm, x, [&](const Var& y) {
        return layer.cross.attend_projected(context, y, s.cross[i],
                                            {.mask = KeyLengths{},
                                             .key_lengths = s.source_lengths,
                                             .weights = slot(&capture, "decoder.cross", i)});
      });
      x = residual(context, layer.final_norm, x,
                   [&](const Var& y) { return layer.feed_forward(context, y); });
    }
    if (config_.norm == NormPlace::pre) x = decoder_norm_(context, x);
    ++s.steps;
    for (const std::int64_t length : s.source_lengths)
      s.score_evaluations += config_.heads * config_.decoder_layers * (s.steps + length);
    s.alignment = alignment_of(capture, *this).reshape({s.rows, s.source_len});
    return reshape(x, {s.rows, config_.dim});
  }

 private:
  // As alignment_of chooses.
  std::size_t alignment_layer() const { return decoder_.size() >= 2 ? decoder_.size() - 2 : 0; }

  // Where an attention call leaves its weights. Good until the next slot is asked for.
  Tensor* slot(Capture* capture, const std::string& name, std::size_t layer) const {
    if (!capture) return nullptr;
    if (capture->scope == Capture::Scope::alignment &&
        (name != "decoder.cross" || layer != alignment_layer()))
      return nullptr;
    capture->push_back({name + " layer " + std::to_string(layer + 1), static_cast<int>(layer), {}});
    return &capture->back().weights;
  }

  Var embed(Context& context, std::span<const std::int32_t> ids, std::int64_t batch, std::int64_t length,
            std::int64_t first) const {
    const Var words = embedding_(context, ids, std::sqrt(static_cast<float>(config_.dim)));
    return context.dropout(nn::add_positions(reshape(words, {batch, length, config_.dim}),
                                             nn::sinusoidal_positions(first, length, config_.dim)),
                           config_.dropout);
  }

  template <class Sublayer>
  Var residual(Context& context, const nn::LayerNorm& norm, const Var& x, Sublayer&& sublayer) const {
    if (config_.norm == NormPlace::post)
      return norm(context, add(x, context.dropout(sublayer(x), config_.dropout)));
    return add(x, context.dropout(sublayer(norm(context, x)), config_.dropout));
  }

  Var encode(Context& context, std::span<const std::int32_t> source, std::int64_t batch, std::int64_t length,
             std::span<const std::int64_t> lengths, Capture* capture, std::int64_t* evaluations) const {
    Var x = embed(context, source, batch, length, 0);
    for (std::size_t i = 0; i < encoder_.size(); ++i) {
      const EncoderLayer& layer = encoder_[i];
      x = residual(context, layer.self_norm, x, [&](const Var& y) {
        return layer.self(
            context, y, y,
            {.mask = KeyLengths{}, .key_lengths = lengths, .weights = slot(capture, "encoder.self", i)});
      });
      x = residual(context, layer.final_norm, x,
                   [&](const Var& y) { return layer.feed_forward(context, y); });
    }
    if (evaluations) {
      for (const std::int64_t n : lengths) *evaluations += config_.heads * config_.encoder_layers * n * n;
    }
    return config_.norm == NormPlace::pre ? encoder_norm_(context, x) : x;
  }

  TransformerConfig config_;
  nn::Embedding embedding_;
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_;
  nn::LayerNorm encoder_norm_, decoder_norm_;
  nn::Parameter* output_bias_ = nullptr;
};

}  // namespace

std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config, std::uint64_t seed) {
  return std::make_unique<TransformerModel>(config, seed);
}

}  // namespace fovea::models
