// Models small enough for a test, one of every kind, and sentences for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "fovea/attention/make_mod.h"
#include "fovea/core/philox.h"
#include "fovea/models/decoding.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::models {

using Sentences = std::vector<std::vector<std::int32_t>>;

inline constexpr std::int64_t tiny_vocabulary = 13;
inline constexpr std::int32_t first_word = 4;

/// `count` sentences of 1 to `longest` words.
inline Sentences random_sentences(std::size_t count, std::uint32_t longest, std::uint64_t seed) {
  PhiloxStream random(seed);
  Sentences sentences(count);
  for (auto& sentence : sentences) {
    sentence.resize(1 + random.next_below(longest));
    for (auto& word : sentence)
      word = first_word + static_cast<std::int32_t>(random.next_below(tiny_vocabulary - first_word));
  }
  return sentences;
}

/// Words of a language model with tiny_vocabulary words.
inline std::vector<std::int32_t> drawn(std::size_t count, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<std::int32_t> ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.next_below(tiny_vocabulary));
  return ids;
}

struct Kind {
  std::string name;
  std::function<std::unique_ptr<SequenceToSequence>(float dropout, std::uint64_t seed)> make;
  /// Layers of a Transformer with attention: of the encoder, and of the decoder to itself and to the encoder.
  struct Attentions {
    std::int64_t encoder = 2, decoder = 3, cross = 3;
  };
  Attentions attentions = {};
  bool has_recurrent_encoder() const { return attentions.encoder < Attentions().encoder; }
  /// Of central differences. The norms by head of recurrences bend the loss where an output is small.
  double step = 0.01;
};
inline void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

inline Kind rnn_kind(std::string name, RnnConfig config) {
  config.vocabulary = tiny_vocabulary;
  config.embedding = 6;
  config.hidden = 8;
  return {std::move(name), [config](float dropout, std::uint64_t seed) mutable {
            config.dropout = dropout;
            return make_rnn(config, seed);
          }};
}

inline TransformerConfig tiny_transformer(float dropout) {
  return {.vocabulary = tiny_vocabulary,
          .dim = 8,
          .feed_forward = 12,
          .heads = 2,
          .encoder_layers = 2,
          .decoder_layers = 3,
          .dropout = dropout,
          .attention_dropout = dropout};
}

/// A translator by mixers.
inline Kind mixer_kind(const std::string& encoder, const std::string& decoder) {
  std::string name = "transformer_" + encoder + (encoder == decoder ? "" : "_then_" + decoder);
  std::replace(name.begin(), name.end(), ',', '_');
  const std::vector<LayerMixer> reads = parse_mixers(encoder, 2), writes = parse_mixers(decoder, 2);
  const auto attentions = [](const std::vector<LayerMixer>& mixers) {
    return std::count(mixers.begin(), mixers.end(), LayerMixer::attention);
  };
  return {.name = std::move(name),
          .make =
              [=](float dropout, std::uint64_t seed) {
                TransformerConfig config = tiny_transformer(dropout);
                config.norm = NormPlace::pre;
                config.encoder_layers = config.decoder_layers = 2;
                config.encoder_mixers = reads;
                config.decoder_mixers = writes;
                return make_transformer(config, seed);
              },
          .attentions = {.encoder = attentions(reads), .decoder = attentions(writes), .cross = 2},
          .step = 0.001};
}

inline Kind transformer_kind(
    std::string name, NormPlace norm,
    TransformerConfig::Positions positions = TransformerConfig::Positions::sinusoidal) {
  return {std::move(name), [=](float dropout, std::uint64_t seed) {
            TransformerConfig config = tiny_transformer(dropout);
            config.norm = norm;
            config.positions = positions;
            config.longest = 64;
            return make_transformer(config, seed);
          }};
}

/// Transformers whose layers cannot be described by a config.json: a user's mod with a learned argument in
/// every self-attention, and the blocks of Llama.
inline std::vector<Kind> kinds_without_config() {
  const auto kind = [](std::string name, const std::function<void(nn::StackSpec&)>& change) {
    return Kind{std::move(name), [=](float dropout, std::uint64_t seed) {
                  const TransformerConfig config = tiny_transformer(dropout);
                  TransformerStacks stacks = transformer_stacks(config);
                  change(stacks.encoder);
                  change(stacks.decoder);
                  return make_transformer(config, stacks, seed);
                }};
  };
  return {kind("transformer_lambda",
               [](nn::StackSpec& stack) {
                 const Mod pull = make_mod("pull", {"rate"}, [](auto score, Site at, auto rate) {
                   using T = elementwise::Scalar<decltype(score)>;
                   return score - rate * elementwise::log(T(1) + elementwise::abs(T(at.query - at.key)));
                 });
                 Tensor start(DType::f32, {1, 2, 1, 1});
                 start.fill(0.3);
                 for (nn::BlockSpec& block : stack.blocks) {
                   auto& attention = std::get<nn::AttentionOptions>(block.mixer);
                   attention.spec.mods = {pull};
                   attention.learned = {{"mods[0].rate", start}};
                 }
               }),
          kind("transformer_of_llamas_blocks", [](nn::StackSpec& stack) {
            for (nn::BlockSpec& block : stack.blocks) {
              auto& attention = std::get<nn::AttentionOptions>(block.mixer);
              attention.num_kv_heads = 1;
              attention.head_dim = 3;
              // With dropout a row of 8 elements may be near 0. There a smaller epsilon bends the loss so
              // much that its differences are no derivatives.
              block.norm = {.kind = nn::NormSpec::Kind::rms, .epsilon = 0.1f};
              block.mlp = nn::GatedMlp{.inner = 10};
            }
          })};
}

/// Every attention, every choice of the query state, both kinds of values, all cells, both places of the
/// norm, all positions, all mixers.
inline std::vector<Kind> every_kind() {
  using enum RnnAttention;
  std::vector<Kind> kinds{
      rnn_kind("rnn_none", {.attention = none}),
      rnn_kind("rnn_none_simple_cell", {.cell = autograd::Cell::rnn, .attention = none}),
      rnn_kind("rnn_additive_simple_cell", {.cell = autograd::Cell::rnn, .attention = additive}),
      transformer_kind("transformer_post", NormPlace::post),
      transformer_kind("transformer_pre", NormPlace::pre),
      transformer_kind("transformer_rotary", NormPlace::pre, TransformerConfig::Positions::rotary),
      transformer_kind("transformer_alibi", NormPlace::pre, TransformerConfig::Positions::alibi),
      transformer_kind("transformer_relative", NormPlace::post, TransformerConfig::Positions::relative),
      rnn_kind("rnn_lstm", {.cell = autograd::Cell::lstm, .attention = additive}),
      rnn_kind("rnn_lstm_after",
               {.cell = autograd::Cell::lstm, .attention = dot, .query = QueryState::after}),
      rnn_kind("rnn_lstm_none", {.cell = autograd::Cell::lstm, .attention = none})};
  for (const char* mixer :
       {"linear", "retention", "gla", "gated_delta", "mamba2", "mamba", "rwkv7", "performer"})
    kinds.push_back(mixer_kind(mixer, mixer));
  kinds.push_back(mixer_kind("gated_delta,attention", "mamba2"));
  kinds.push_back(mixer_kind("attention", "rwkv7,attention"));
  const std::vector<std::pair<std::string, RnnAttention>> scores{
      {"additive", additive}, {"dot", dot}, {"scaled_dot", scaled_dot}, {"general", general}};
  for (const auto& [name, attention] : scores) {
    for (const QueryState query : {QueryState::before, QueryState::after}) {
      for (const ValueKind values : {ValueKind::states, ValueKind::projection}) {
        kinds.push_back(rnn_kind("rnn_" + name + (query == QueryState::before ? "_before" : "_after") +
                                     (values == ValueKind::states ? "_states" : "_projection"),
                                 {.attention = attention, .query = query, .values = values}));
      }
    }
  }
  return kinds;
}

/// Moves weights away from their initial zeros (biases) and ones (norms), where mistakes could cancel.
template <class Model>
void perturb(Model& model, std::uint64_t seed, float amount = 0.2f) {
  PhiloxStream random(seed);
  for (nn::Parameter& parameter : model.parameters().all()) {
    for (std::int64_t i = 0; i < parameter.value.count(); ++i)
      parameter.value.data<float>()[i] += amount * (2.0f * random.next_uniform() - 1.0f);
  }
}

}  // namespace fovea::models
