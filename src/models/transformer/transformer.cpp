#include "fovea/models/transformer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "fovea/core/kept_vector.h"
#include "fovea/nn/transformer.h"
#include "models/configs.h"
#include "models/rows.h"
#include "models/stack.h"

namespace fovea::models {
namespace {

using nn::Context;
using nn::Var;

struct TransformerState final : DecoderState {
  nn::TransformerStack::Cache cache;

  std::unique_ptr<DecoderState> clone() const override {
    auto copy = std::make_unique<TransformerState>();
    static_cast<DecoderState&>(*copy) = *this;
    copy->cache = cache.fork();
    return copy;
  }
  std::int64_t bytes() const override { return cache.bytes(); }
  void reorder(std::span<const std::int64_t> index) override {
    check_index(index, rows);
    if (is_identity(index, rows)) return;
    std::vector<std::int64_t> lengths;
    for (const std::int64_t i : index) lengths.push_back(source_lengths[static_cast<std::size_t>(i)]);
    cache.reorder(index);
    alignment = gather_entries(alignment, index);
    source_lengths = std::move(lengths);
    rows = static_cast<std::int64_t>(index.size());
  }
};

// The ids of padded sentences one behind another; sentence n begins at starts[n].
struct PackedIds {
  PackedIds(std::span<const std::int32_t> padded, std::int64_t length,
            std::span<const std::int64_t> lengths) {
    ids.reserve(padded.size());
    starts.reserve(lengths.size() + 1);
    starts.push_back(0);
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      const auto sentence =
          padded.subspan(n * static_cast<std::size_t>(length), static_cast<std::size_t>(lengths[n]));
      ids.insert(ids.end(), sentence.begin(), sentence.end());
      starts.push_back(std::ssize(ids));
    }
  }
  KeptVector<std::int32_t> ids;
  KeptVector<std::int64_t> starts;
};

class TransformerModel final : public SequenceToSequence {
 public:
  enum class Layers : std::uint8_t { of_the_config, their_own };
  TransformerModel(const TransformerConfig& config, const TransformerStacks& stacks, Layers layers,
                   nn::ParameterSet empty)
      : SequenceToSequence(std::move(empty)), config_(config), layers_(layers) {
    declare({.vocabulary = config.vocabulary,
             .encoder = stacks.encoder,
             .decoder = stacks.decoder,
             .embedding_factor = std::sqrt(static_cast<float>(config.dim))});
  }
  TransformerModel(const TranslatorSpec& spec, nn::ParameterSet::Source source)
      : SequenceToSequence(nn::ParameterSet(std::move(source))),
        config_{.vocabulary = spec.vocabulary, .dim = spec.encoder.dim},
        layers_(Layers::their_own) {
    declare(spec);
  }

  std::string config() const override {
    if (layers_ == Layers::their_own)
      throw InvalidArgument("SequenceToSequence::config", "stacks", "those of transformer_stacks(config)",
                            "the layers of a config: config.json cannot describe others");
    return write_config(config_);
  }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  bool attends() const override { return true; }
  std::vector<LayerKeeps> decoder_keeps() const override { return layers_keep(decoder_); }
  Var output_weight(Context& context) override { return context.use(output_ ? *output_ : *embedding_.table); }
  Var output_bias(Context& context) override { return output_bias_ ? context.use(*output_bias_) : Var(); }

  Var hidden(Context& context, const Batch& batch, Capture* capture, std::int64_t* evaluations) override {
    const Var memory = encode(context, batch.source, batch.size, batch.source_len, batch.source_lengths,
                              capture, evaluations);
    const Var x =
        decoder_(context, embed(context, decoder_, batch.target_input, batch.size, batch.target_len, 0),
                 {.mask = Causal{},
                  .memory = memory,
                  .memory_mask = KeyLengths{},
                  .memory_lengths = batch.source_lengths,
                  .weights = slots(capture, decoder_, "decoder.self", "decoder.cross"),
                  .log_decays = decay_slots(capture)});
    if (evaluations) {
      const std::int64_t t = batch.target_len;
      for (const std::int64_t length : batch.source_lengths) {
        *evaluations += heads_of(decoder_) * (t * (t + 1) / 2) + cross_heads_of(decoder_) * t * length;
      }
    }
    return output_rows(x, batch.size * batch.target_len);
  }

  Var hidden_of_words(Context& context, const Batch& batch) override {
    if (!runs_packed(encoder_) || !runs_packed(decoder_)) return {};
    const PackedIds source(batch.source, batch.source_len, batch.source_lengths),
        target(batch.target_input, batch.target_len, batch.target_lengths);
    const Var memory = encode(context, source);
    const Var x = decoder_(
        context, embed(context, decoder_, target),
        {.mask = Causal{}, .memory = memory, .starts = target.starts, .memory_starts = source.starts});
    return output_rows(x, std::ssize(target.ids));
  }

  std::unique_ptr<DecoderState> start(std::span<const std::int32_t> source, std::int64_t source_len,
                                      std::span<const std::int64_t> lengths) override {
    Context context;
    auto state = std::make_unique<TransformerState>();
    state->rows = static_cast<std::int64_t>(lengths.size());
    state->source_len = source_len;
    state->source_lengths.assign(lengths.begin(), lengths.end());
    for (const std::int64_t n : lengths) state->score_evaluations += heads_of(encoder_) * n * n;
    const bool padded = std::ranges::any_of(lengths, [&](std::int64_t n) { return n < source_len; });
    Var memory;
    if (padded && runs_packed(encoder_)) {
      const PackedIds packed(source, source_len, lengths);
      memory = with_padding(encode(context, packed).value(), packed.starts, source_len);
    } else {
      memory = encode(context, source, state->rows, source_len, lengths, nullptr, nullptr);
    }
    // Beams of 5 that write 22 words hold 57 MB in pages of 8 rows, and 84 in pages of 16. On two threads of
    // a Zen 5 a base model took 0.96 of the time for that. With 106 words it took as long as before.
    state->cache = decoder_.start(context, memory, {.store = Paged{8}});
    return state;
  }

  Var advance(DecoderState& base, std::span<const std::int32_t> previous) override {
    auto& s = static_cast<TransformerState&>(base);
    Context context;
    Capture capture;
    capture.scope = Capture::Scope::alignment;
    const Var x = decoder_.extend(
        context, embed(context, decoder_, previous, s.rows, 1, s.steps), s.cache,
        {.mask = Causal{},
         .memory_mask = KeyLengths{},
         .memory_lengths = s.source_lengths,
         .weights = slots(s.aligns ? &capture : nullptr, decoder_, "decoder.self", "decoder.cross")});
    ++s.steps;
    for (const std::int64_t length : s.source_lengths)
      s.score_evaluations += heads_of(decoder_) * s.steps + cross_heads_of(decoder_) * length;
    s.alignment = s.aligns ? alignment_of(capture, *this).reshape({s.rows, s.source_len}) : Tensor();
    return output_rows(x, s.rows);
  }

 private:
  void declare(const TranslatorSpec& spec) {
    nn::ParameterSet& set = parameters();
    embedding_ = nn::Embedding(set, "model.shared", spec.vocabulary, spec.encoder.dim);
    encoder_ = nn::TransformerStack(set, "model.encoder", spec.encoder);
    decoder_ = nn::TransformerStack(set, "model.decoder", spec.decoder);
    if (spec.output == TranslatorSpec::Output::own)
      output_ = &set.xavier("lm_head.weight", {spec.vocabulary, spec.encoder.dim});
    (output_ ? output_ : embedding_.table)->multiplies_rows = true;
    if (spec.bias == nn::Linear::Bias::with)
      output_bias_ = &set.constant("final_logits_bias", {spec.vocabulary}, 0.0f);
    embedding_factor_ = spec.embedding_factor;
    output_factor_ = spec.output_factor;
  }

  Var output_rows(const Var& x, std::int64_t rows) const {
    const Var flat = reshape(x, {rows, config_.dim});
    return output_factor_ == 1.0f ? flat : scale(flat, output_factor_);
  }

  // The number of heads of all layers together whose queries meet keys of their own sequence. A recurrence
  // has none.
  static std::int64_t heads_of(const nn::TransformerStack& stack) {
    std::int64_t heads = 0;
    for (const nn::BlockSpec& block : stack.spec().blocks) {
      if (const auto* attention = std::get_if<nn::AttentionOptions>(&block.mixer))
        heads += attention->num_query_heads;
    }
    return heads * stack.spec().rounds;
  }
  // The same of attention to the encoder's output.
  static std::int64_t cross_heads_of(const nn::TransformerStack& stack) {
    std::int64_t heads = 0;
    for (const nn::BlockSpec& block : stack.spec().blocks) heads += block.cross->num_query_heads;
    return heads * stack.spec().rounds;
  }

  // As alignment_of chooses.
  std::size_t alignment_layer() const { return decoder_.size() >= 2 ? decoder_.size() - 2 : 0; }

  // The tensors that receive the weights of each attention of a stack. A slot is valid until the next one is
  // requested.
  std::function<Tensor*(std::string_view, std::size_t)> slots(Capture* capture,
                                                              const nn::TransformerStack& stack,
                                                              std::string self, std::string memory) const {
    if (!capture) return {};
    return [=, &stack, this](std::string_view place, std::size_t layer) -> Tensor* {
      const std::string& name = place == "self" ? self : memory;
      if (capture->scope == Capture::Scope::alignment &&
          (name != "decoder.cross" || layer != alignment_layer()))
        return nullptr;
      CapturedWeights& slot = capture->emplace_back(
          CapturedWeights{name + " layer " + std::to_string(layer + 1), static_cast<int>(layer), {}});
      if (const nn::RecurrentMixer* recurrence = place == "self" ? stack.recurrence(layer) : nullptr) {
        slot.name += std::string(" ") + nn::name_of(recurrence->options());
        slot.of = CapturedWeights::Of::recurrence;
      } else if (place == "self" && stack.block_attention(layer)) {
        slot.name += std::string(" ") + nn::mixer_name(stack.spec().of_layer(layer).mixer);
      }
      return &slot.weights;
    };
  }

  // The decays of a recurrence are requested right behind its weights.
  static std::function<Tensor*(std::size_t)> decay_slots(Capture* capture) {
    if (!capture || capture->scope == Capture::Scope::alignment) return {};
    return [capture](std::size_t) { return &capture->back().log_decays; };
  }

  Var embed(Context& context, const nn::TransformerStack& stack, std::span<const std::int32_t> ids,
            std::int64_t batch, std::int64_t length, std::int64_t first) const {
    const Var words = embedding_(context, ids, embedding_factor_);
    return stack.enter(context, reshape(words, {batch, length, config_.dim}), first);
  }

  Var encode(Context& context, std::span<const std::int32_t> source, std::int64_t batch, std::int64_t length,
             std::span<const std::int64_t> lengths, Capture* capture, std::int64_t* evaluations) const {
    if (evaluations) {
      for (const std::int64_t n : lengths) *evaluations += heads_of(encoder_) * n * n;
    }
    return encoder_(context, embed(context, encoder_, source, batch, length, 0),
                    {.mask = KeyLengths{},
                     .lengths = lengths,
                     .weights = slots(capture, encoder_, "encoder.self", "encoder.self"),
                     .log_decays = decay_slots(capture)});
  }

  // Packed, recurrences would need the starts in both directions, and mergings and compressions the rows of
  // each entry.
  static bool runs_packed(const nn::TransformerStack& stack) {
    return std::ranges::all_of(stack.spec().blocks, [](const nn::BlockSpec& block) {
      const auto* attention = std::get_if<nn::AttentionOptions>(&block.mixer);
      return attention && !attention->compression && !block.merging;
    });
  }

  Var embed(Context& context, const nn::TransformerStack& stack, const PackedIds& packed) const {
    const KeptVector<std::int64_t> first(packed.starts.size() - 1, 0);
    const Var words = embedding_(context, packed.ids, embedding_factor_);
    return stack.enter(context, reshape(words, {1, std::ssize(packed.ids), config_.dim}), packed.starts,
                       first);
  }

  // The same without work for padding: [1, words of all sentences, dim].
  Var encode(Context& context, const PackedIds& source) const {
    return encoder_(context, embed(context, encoder_, source),
                    {.mask = Everything{}, .starts = source.starts});
  }

  // For a decoder that reads a padded memory. Rows of padding are zero: [sentences, length, dim].
  Tensor with_padding(const Tensor& rows, std::span<const std::int64_t> starts, std::int64_t length) const {
    const std::int64_t sentences = std::ssize(starts) - 1, dim = config_.dim;
    Tensor padded(DType::f32, {sentences, length, dim});
    for_pieces_of_rows(sentences, length * dim, [&](std::int64_t n, std::int64_t begin, std::int64_t end) {
      const std::int64_t first = starts[static_cast<std::size_t>(n)] * dim,
                         words = starts[static_cast<std::size_t>(n) + 1] * dim - first,
                         behind = std::clamp(words, begin, end);
      float* to = padded.data<float>() + n * length * dim;
      std::copy(rows.data<float>() + first + begin, rows.data<float>() + first + behind, to + begin);
      std::fill(to + behind, to + end, 0.0f);
    });
    return padded;
  }

  TransformerConfig config_;
  Layers layers_;
  nn::Embedding embedding_;
  nn::TransformerStack encoder_, decoder_;
  nn::Parameter* output_ = nullptr;  // null: the embeddings' table
  nn::Parameter* output_bias_ = nullptr;
  float embedding_factor_ = 1.0f, output_factor_ = 1.0f;
};

}  // namespace

namespace {

void check_stacks(const char* function, const TransformerStacks& stacks, std::int64_t dim) {
  for (const nn::StackSpec* stack : {&stacks.encoder, &stacks.decoder}) {
    if (stack->dim != dim)
      throw InvalidArgument(function, "stacks", "of width " + std::to_string(dim),
                            std::to_string(stack->dim));
    if (stack->input_dim)
      throw InvalidArgument(function, "stacks",
                            "without input_dim: one table serves both, and makes the logits",
                            std::to_string(*stack->input_dim));
  }
  for (const nn::BlockSpec& block : stacks.decoder.blocks) {
    if (!block.cross)
      throw InvalidArgument(function, "stacks.decoder", "blocks that read a memory", "one without `cross`");
  }
}

}  // namespace

std::unique_ptr<SequenceToSequence> make_translator(const TranslatorSpec& spec,
                                                    nn::ParameterSet::Source source) {
  check_stacks("make_translator", {spec.encoder, spec.decoder}, spec.encoder.dim);
  return std::make_unique<TransformerModel>(spec, std::move(source));
}

namespace {

TransformerConfig checked(TransformerConfig config) {
  check_mixers("make_transformer", "config.encoder_mixers", config.encoder_mixers, config.encoder_layers);
  for (const LayerMixer mixer : config.encoder_mixers) {
    if (!reads_both_sides(mixer))
      throw InvalidArgument("make_transformer", "config.encoder_mixers", "mixers that read both sides",
                            std::string(to_string(mixer)) + ", which reads from left to right");
  }
  check_mixers("make_transformer", "config.decoder_mixers", config.decoder_mixers, config.decoder_layers);
  return config;
}

}  // namespace

TransformerStacks transformer_stacks(const TransformerConfig& given) {
  const TransformerConfig config = checked(given);
  TransformerStacks stacks{stack_spec(config, config.encoder_layers, CrossAttention::without, config.norm),
                           stack_spec(config, config.decoder_layers, CrossAttention::with, config.norm)};
  set_mixers(stacks.encoder, config.encoder_mixers, config.heads, nn::Sees::both_sides);
  set_mixers(stacks.decoder, config.decoder_mixers, config.heads, nn::Sees::the_past);
  using Positions = TransformerConfig::Positions;
  switch (config.positions) {
    case Positions::sinusoidal:
      stacks.encoder.positions = stacks.decoder.positions = nn::SinusoidalPositions{};
      break;
    case Positions::rotary:
      nn::add_rotary(stacks.encoder, config.longest);
      nn::add_rotary(stacks.decoder, config.longest);
      break;
    case Positions::alibi:
      nn::add_alibi(stacks.encoder, nn::Sees::both_sides);
      nn::add_alibi(stacks.decoder, nn::Sees::the_past);
      break;
    case Positions::relative:
      nn::add_relative_bias(stacks.encoder, {.direction = RelativeBias::Direction::bidirectional});
      nn::add_relative_bias(stacks.decoder, {.direction = RelativeBias::Direction::causal});
      break;
  }
  return stacks;
}

std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config, std::uint64_t seed) {
  return make_transformer(config, nn::ParameterSet(seed));
}

std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config,
                                                     nn::ParameterSet parameters) {
  return std::make_unique<TransformerModel>(checked(config), transformer_stacks(config),
                                            TransformerModel::Layers::of_the_config, std::move(parameters));
}

std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config,
                                                     const TransformerStacks& stacks, std::uint64_t seed) {
  check_stacks("make_transformer", stacks, config.dim);
  return std::make_unique<TransformerModel>(config, stacks, TransformerModel::Layers::their_own,
                                            nn::ParameterSet(seed));
}

}  // namespace fovea::models
