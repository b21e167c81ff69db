#include "fovea/models/rnn.h"

#include <array>
#include <utility>

#include "fovea/autograd/plan_cache.h"
#include "fovea/core/kept_vector.h"
#include "fovea/nn/layers.h"
#include "models/configs.h"
#include "models/rows.h"

namespace fovea::models {
namespace {

using autograd::Direction;
using nn::Context;
using nn::Var;

// The encoder's results for the decoder. Keys and values are projected once for each sentence, not once for
// each step.
struct Memory {
  Var final_state;   // [B, 2H]: the forward direction's last state and the backward one's
  Var keys, values;  // [B, S, *]; empty without attention
};

struct RnnState final : DecoderState {
  Tensor state;        // [rows, S·H]
  Tensor final_state;  // [rows, 2H]; only without attention
  Tensor keys, values;
  std::vector<std::int64_t> source_row;  // which source a row decodes

  std::unique_ptr<DecoderState> clone() const override { return std::make_unique<RnnState>(*this); }
  std::int64_t bytes() const override {
    return static_cast<std::int64_t>(state.bytes() + (final_state ? final_state.bytes() : 0) +
                                     (keys ? keys.bytes() : 0) + (values ? values.bytes() : 0));
  }
  void reorder(std::span<const std::int64_t> index) override {
    check_index(index, rows);
    if (is_identity(index, rows)) return;
    std::vector<std::int64_t> sources, lengths;
    for (const std::int64_t i : index) {
      sources.push_back(source_row[static_cast<std::size_t>(i)]);
      lengths.push_back(source_lengths[static_cast<std::size_t>(i)]);
    }
    state = gather_entries(state, index);
    alignment = gather_entries(alignment, index);
    if (sources !=
        source_row) {  // beams of one sentence share keys and values: those move only when sentences do
      final_state = gather_entries(final_state, index);
      keys = gather_entries(keys, index);
      values = gather_entries(values, index);
    }
    source_row = std::move(sources);
    source_lengths = std::move(lengths);
    rows = static_cast<std::int64_t>(index.size());
  }
};

class RnnModel final : public SequenceToSequence {
 public:
  RnnModel(const RnnConfig& config, nn::ParameterSet empty)
      : SequenceToSequence(std::move(empty)), config_(config) {
    nn::ParameterSet& set = parameters();
    const std::int64_t e = config.embedding, h = config.hidden;
    embedding_ = nn::Embedding(set, "shared", config.vocabulary, e);
    forward_ = nn::RnnLayer(set, "encoder.forward", config.cell, e, h);
    backward_ = nn::RnnLayer(set, "encoder.backward", config.cell, e, h);
    bridge_ = nn::Linear(set, "bridge", 2 * h, autograd::state_count(config.cell) * h);
    decoder_ = nn::RnnLayer(set, "decoder", config.cell, e, h);
    using Bias = nn::Linear::Bias;
    if (reads_context()) {
      decoder_context_ = nn::Linear(set, "decoder.context", context_dim(),
                                    autograd::gate_count(config.cell) * h, Bias::without);
    }
    // Adam moves all products of a score in the same direction, so the score moves sqrt(width) times as far
    // as a scaled dot product. Without scale_score the unscaled scores became a hard softmax on a wrong key
    // within 50 updates and stayed there (docs/decisions/0019). The tanh bounds the additive score.
    switch (config.attention) {
      case RnnAttention::none:
        break;
      case RnnAttention::additive:
        query_ = nn::Linear(set, "attention.query", h, h);
        key_ = nn::Linear(set, "attention.key", 2 * h, h, Bias::without);
        vector_ = &set.xavier("attention.vector", {h});
        spec_.score = Additive{};
        break;
      case RnnAttention::dot:
        key_ = nn::Linear(set, "attention.key", 2 * h, h, Bias::without);
        nn::scale_score({key_.weight}, h);
        spec_.score = Dot{};
        break;
      case RnnAttention::scaled_dot:
        key_ = nn::Linear(set, "attention.key", 2 * h, h, Bias::without);
        spec_.score = ScaledDot{};
        break;
      case RnnAttention::low_rank:
        query_ = nn::Linear(set, "attention.query", h, config.rank, Bias::without);
        key_ = nn::Linear(set, "attention.key", 2 * h, config.rank, Bias::without);
        nn::scale_score({query_.weight, key_.weight}, config.rank);
        // Both sides are projected, the keys once for each sentence, so (U k)ᵀ(W q) is a dot product.
        spec_.score = Dot{};
        break;
      case RnnAttention::general:
        bilinear_ = &set.xavier("attention.bilinear", {2 * h, h});
        nn::scale_score({bilinear_}, h);
        spec_.score = Bilinear{};
        break;
    }
    if (attends() && config.values == ValueKind::projection)
      value_ = nn::Linear(set, "attention.value", 2 * h, h);
    readout_ = nn::Linear(set, "readout", h + context_dim() + e, e);
    embedding_.table->multiplies_rows = true;
    output_bias_ = &set.constant("output.bias", {config.vocabulary}, 0.0f);
  }

  std::string config() const override { return write_config(config_); }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  bool attends() const override { return config_.attention != RnnAttention::none; }
  Var output_weight(Context& context) override { return context.use(*embedding_.table); }
  Var output_bias(Context& context) override { return context.use(*output_bias_); }

  Var hidden(Context& context, const Batch& batch, Capture* capture, std::int64_t* evaluations) override {
    const Memory memory = encode(context, batch.source, batch.size, batch.source_len, batch.source_lengths);
    const std::int64_t steps = batch.target_len, e = config_.embedding;
    const Var words = context.dropout(
        reshape(embedding_(context, batch.target_input), {batch.size, steps, e}), config_.dropout);
    const Var initial = initial_state(context, memory);
    if (evaluations && attends()) {
      for (const std::int64_t length : batch.source_lengths) *evaluations += length * steps;
    }
    Tensor weights;
    Tensor* wanted = capture && attends() ? &weights : nullptr;
    const auto [states, contexts] =
        config_.attention == RnnAttention::none ? decode_fixed(context, batch, memory, words, initial)
        : config_.query == QueryState::after    ? decode_after(context, batch, memory, words, initial, wanted)
                                             : decode_before(context, batch, memory, words, initial, wanted);
    if (wanted) capture->push_back({"decoder.cross", 0, weights});
    return reshape(read(context, states, contexts, words), {batch.size * steps, e});
  }

  std::unique_ptr<DecoderState> start(std::span<const std::int32_t> source, std::int64_t source_len,
                                      std::span<const std::int64_t> lengths) override {
    Context context;
    const auto rows = static_cast<std::int64_t>(lengths.size());
    const Memory memory = encode(context, source, rows, source_len, lengths);
    auto state = std::make_unique<RnnState>();
    state->rows = rows;
    state->source_len = source_len;
    state->source_lengths.assign(lengths.begin(), lengths.end());
    for (std::int64_t i = 0; i < rows; ++i) state->source_row.push_back(i);
    state->state = initial_state(context, memory).value();
    if (attends()) {
      state->keys = memory.keys.value();
      state->values = memory.values.value();
    } else {
      state->final_state = memory.final_state.value();
    }
    return state;
  }

  Var advance(DecoderState& base, std::span<const std::int32_t> previous) override {
    auto& s = static_cast<RnnState&>(base);
    Context context;
    const Var word = embedding_(context, previous);
    const Memory memory{s.final_state, s.keys, s.values};
    Tensor weights;
    const auto attend = [&](const Var& query) {
      const Var row = reshape(decoder_.output(query), {s.rows, 1, config_.hidden});
      const Var result = attend_to(context, memory, s.source_lengths, row, s.aligns ? &weights : nullptr);
      return reshape(result, {s.rows, context_dim()});
    };
    Var gates = decoder_.input(context, word), c;
    if (config_.attention == RnnAttention::none) c = s.final_state;
    if (attends() && config_.query == QueryState::before) c = attend(s.state);
    if (reads_context()) gates = add(gates, decoder_context_(context, c));
    const Var state =
        cell_step(config_.cell, gates, s.state, context.use(*decoder_.weight), context.use(*decoder_.bias));
    if (attends() && config_.query == QueryState::after) c = attend(state);
    s.state = state.value();
    if (attends()) {
      s.alignment = s.aligns ? weights.reshape({s.rows, s.source_len}) : Tensor();
      for (const std::int64_t length : s.source_lengths) s.score_evaluations += length;
    }
    ++s.steps;
    return read(context, decoder_.output(state), c, word);
  }

 private:
  struct Decoded {
    Var states, contexts;  // [B, T, *]
  };

  std::int64_t context_dim() const {
    return attends() && config_.values == ValueKind::projection ? config_.hidden : 2 * config_.hidden;
  }
  bool reads_context() const { return !attends() || config_.query == QueryState::before; }

  Memory encode(Context& context, std::span<const std::int32_t> source, std::int64_t batch,
                std::int64_t length, std::span<const std::int64_t> lengths) const {
    const Var words = context.dropout(
        reshape(embedding_(context, source), {batch, length, config_.embedding}), config_.dropout);
    const std::int64_t h = config_.hidden;
    const std::array<Var, 2> directions{
        forward_.output(forward_.sequence(context, words, Direction::forward, {}, lengths)),
        backward_.output(backward_.sequence(context, words, Direction::backward, {}, lengths))};
    // Padding copies the state, so the forward direction's last column is its state at the last word.
    const std::array<Var, 2> ends{reshape(slice(directions[0], 1, length - 1, 1), {batch, h}),
                                  reshape(slice(directions[1], 1, 0, 1), {batch, h})};
    Memory memory{concat(ends, 1), {}, {}};
    if (!attends()) return memory;
    const Var states = context.dropout(concat(directions, 2), config_.dropout);
    memory.keys = config_.attention == RnnAttention::general ? states : key_(context, states);
    memory.values = config_.values == ValueKind::projection ? value_(context, states) : states;
    return memory;
  }

  Var initial_state(Context& context, const Memory& memory) const {
    return tanh(bridge_(context, memory.final_state));
  }

  // query [B, Lq, H] -> context [B, Lq, context_dim].
  Var attend_to(Context& context, const Memory& memory, std::span<const std::int64_t> lengths,
                const Var& query, Tensor* weights) const {
    autograd::AttentionCall call;
    call.spec = spec_;
    call.key_lengths = lengths;
    call.weights = weights;
    call.plans = &plans_;
    if (vector_) call.arguments = {{"score.v", context.use(*vector_)}};
    if (bilinear_) call.arguments = {{"score.W", context.use(*bilinear_)}};
    const bool projects =
        config_.attention == RnnAttention::additive || config_.attention == RnnAttention::low_rank;
    const Var projected = projects ? query_(context, query) : query;
    return autograd::attention(call, projected, memory.keys, memory.values);
  }

  // The same context for every step: the encoder's last state is all the decoder has.
  Decoded decode_fixed(Context& context, const Batch& batch, const Memory& memory, const Var& words,
                       const Var& initial) const {
    const std::int64_t steps = batch.target_len;
    const auto repeated = [&](const Var& x) {
      const KeptVector<Var> copies(static_cast<std::size_t>(steps), reshape(x, {batch.size, 1, x.size(1)}));
      return concat(copies, 1);
    };
    const Var gates =
        add(decoder_.input(context, words), repeated(decoder_context_(context, memory.final_state)));
    const KeptVector<std::int64_t> whole(static_cast<std::size_t>(batch.size), steps);
    const Var states = cell_sequence(config_.cell, Direction::forward, gates, initial,
                                     context.use(*decoder_.weight), context.use(*decoder_.bias), whole);
    return {decoder_.output(states), repeated(memory.final_state)};
  }

  // s_t does not depend on the contexts, so all steps run first, and one attention call serves them all.
  Decoded decode_after(Context& context, const Batch& batch, const Memory& memory, const Var& words,
                       const Var& initial, Tensor* weights) const {
    const KeptVector<std::int64_t> whole(static_cast<std::size_t>(batch.size), batch.target_len);
    const Var states = decoder_.output(decoder_.sequence(context, words, Direction::forward, initial, whole));
    return {states, attend_to(context, memory, batch.source_lengths, states, weights)};
  }

  Decoded decode_before(Context& context, const Batch& batch, const Memory& memory, const Var& words,
                        const Var& initial, Tensor* weights) const {
    const std::int64_t steps = batch.target_len, h = config_.hidden, b = batch.size;
    const Var word_gates = decoder_.input(context, words);
    KeptVector<Var> states, contexts;
    states.reserve(static_cast<std::size_t>(steps));
    contexts.reserve(static_cast<std::size_t>(steps));
    if (weights) *weights = Tensor(DType::f32, {b, 1, steps, batch.source_len});
    Var state = initial;
    for (std::int64_t t = 0; t < steps; ++t) {
      Tensor row;
      const Var c = attend_to(context, memory, batch.source_lengths,
                              reshape(decoder_.output(state), {b, 1, h}), weights ? &row : nullptr);
      const Var gates = add(reshape(slice(word_gates, 1, t, 1), {b, word_gates.size(2)}),
                            decoder_context_(context, reshape(c, {b, context_dim()})));
      state =
          cell_step(config_.cell, gates, state, context.use(*decoder_.weight), context.use(*decoder_.bias));
      states.push_back(reshape(decoder_.output(state), {b, 1, h}));
      contexts.push_back(c);
      for (std::int64_t i = 0; weights && i < b; ++i) {
        std::copy_n(row.data<float>() + i * batch.source_len, batch.source_len,
                    weights->data<float>() + (i * steps + t) * batch.source_len);
      }
    }
    return {concat(states, 1), concat(contexts, 1)};
  }

  // tanh(W [s; c; y]), Luong's attentional state with the previous word beside it (Bahdanau's deep output).
  Var read(Context& context, const Var& states, const Var& contexts, const Var& words) const {
    const std::array<Var, 3> parts{states, contexts, words};
    return context.dropout(tanh(readout_(context, concat(parts, -1))), config_.dropout);
  }

  RnnConfig config_;
  nn::Embedding embedding_;
  nn::RnnLayer forward_, backward_, decoder_;
  nn::Linear bridge_, decoder_context_, query_, key_, value_, readout_;
  AttentionSpec spec_{.mask = KeyLengths{}};
  nn::Parameter* vector_ = nullptr;
  nn::Parameter* bilinear_ = nullptr;
  nn::Parameter* output_bias_ = nullptr;
  mutable autograd::PlanCache plans_;  // a sentence is decoded with one plan, not with one for each step
};

}  // namespace

std::unique_ptr<SequenceToSequence> make_rnn(const RnnConfig& config, std::uint64_t seed) {
  return make_rnn(config, nn::ParameterSet(seed));
}

std::unique_ptr<SequenceToSequence> make_rnn(const RnnConfig& config, nn::ParameterSet parameters) {
  return std::make_unique<RnnModel>(config, std::move(parameters));
}

}  // namespace fovea::models
