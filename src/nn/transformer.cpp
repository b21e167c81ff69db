#include "fovea/nn/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "core/starts.h"
#include "fovea/attention/masks.h"
#include "fovea/core/kept_vector.h"
#include "nn/made.h"
#include "nn/transformer_run.h"

namespace fovea::nn {

FeedForward::FeedForward(ParameterSet& set, const std::string& name, std::int64_t dim, const Mlp& mlp) {
  std::visit(
      [&]<class M>(const M& spec) {
        if constexpr (!std::is_same_v<M, NoMlp>) {
          activation = spec.activation;
          if constexpr (std::is_same_v<M, GatedMlp>)
            gate = Linear(set, name + ".gate", dim, spec.inner, spec.bias);
          first = Linear(set, name + ".fc1", dim, spec.inner, spec.bias);
          second = Linear(set, name + ".fc2", spec.inner, dim, spec.bias);
        }
      },
      mlp);
}

Var FeedForward::operator()(Context& context, const Var& x) const {
  autograd::FeedForwardWeights weights{.first = first.weights(context), .second = second.weights(context)};
  if (gate.weight) weights.gate = gate.weights(context);
  return autograd::feed_forward(x, weights, activation, context.products);
}

bool FeedForward::takes_bf16(const Context& context) const {
  return first.takes_bf16(context) && second.takes_bf16(context) &&
         (!gate.weight || gate.takes_bf16(context));
}

const char* name_of(NormPlace place) {
  static constexpr std::array names{"pre", "post", "sandwich", "end", "none"};
  return names.at(static_cast<std::size_t>(place));
}

const char* mixer_name(const Mixer& mixer) {
  if (const auto* recurrence = std::get_if<RecurrentOptions>(&mixer)) return name_of(*recurrence);
  if (const auto* blocks = std::get_if<BlockAttentionOptions>(&mixer)) return name_of(blocks->by);
  return "attention";
}

StackSpec stack_of(std::int64_t dim, std::int64_t count, const BlockSpec& block) {
  if (count < 0) throw InvalidArgument("stack_of", "count", "at least 0", std::to_string(count));
  StackSpec spec{.dim = dim, .blocks = std::vector<BlockSpec>(static_cast<std::size_t>(count), block)};
  if (block.mlp_norm != NormPlace::post) spec.final_norm = block.norm;
  return spec;
}

StackSpec stack_of(const TransformerOptions& options) {
  AttentionOptions attention{.num_query_heads = options.heads};
  attention.spec.dropout.rate = static_cast<double>(options.attention_dropout);
  BlockSpec block{.mixer = attention,
                  .mlp = PlainMlp{.inner = options.feed_forward},
                  .mixer_norm = options.norm,
                  .cross_norm = options.norm,
                  .mlp_norm = options.norm,
                  .dropout = options.dropout};
  if (options.cross_attention == TransformerOptions::CrossAttention::with) block.cross = attention;
  StackSpec spec = stack_of(options.dim, options.layers, block);
  spec.dropout = options.dropout;
  return spec;
}

namespace {

template <class Change>
void for_attentions(StackSpec& stack, Change&& change) {
  for (BlockSpec& block : stack.blocks) {
    if (auto* attention = std::get_if<AttentionOptions>(&block.mixer)) change(*attention);
  }
}

}  // namespace

void add_alibi(StackSpec& stack, Sees sees) {
  const Mod distance = sees == Sees::the_past ? Mod(AlibiBias{}) : Mod(SymmetricAlibiBias{});
  for_attentions(stack, [&](AttentionOptions& attention) { attention.spec.mods.push_back(distance); });
  for (BlockSpec& block : stack.blocks) {
    if (auto* of_blocks = std::get_if<BlockAttentionOptions>(&block.mixer))
      of_blocks->alibi = BlockAttentionOptions::Alibi::with;
  }
}

void add_relative_bias(StackSpec& stack, const RelativeBias& bias) {
  for_attentions(stack, [&](AttentionOptions& attention) { attention.spec.mods.push_back(bias); });
  stack.arguments = StackSpec::Arguments::of_the_first;
}

void add_rotary(StackSpec& stack, std::int64_t positions, double base) {
  std::map<std::int64_t, RopeTable> tables;  // by head size: copies share a table
  const auto table_of = [&](std::int64_t dim) {
    const auto found = tables.find(dim);
    if (found != tables.end()) return found->second;
    return tables.emplace(dim, RopeTable(Rope{.rotary_dim = dim, .base = base}, positions, DType::f32))
        .first->second;
  };
  const auto table_of_heads = [&](std::int64_t dim, std::int64_t heads) {
    return table_of(dim > 0 ? dim : stack.dim / std::max<std::int64_t>(heads, 1));
  };
  for_attentions(stack, [&](AttentionOptions& attention) {
    attention.rope = table_of_heads(attention.head_dim, attention.num_query_heads);
  });
  for (BlockSpec& block : stack.blocks) {
    if (auto* of_blocks = std::get_if<BlockAttentionOptions>(&block.mixer))
      of_blocks->rope = table_of_heads(of_blocks->head_dim, of_blocks->num_heads);
    auto* recurrence = std::get_if<RecurrentOptions>(&block.mixer);
    auto* retention = recurrence ? std::get_if<RetentionOptions>(recurrence) : nullptr;
    if (!retention) continue;
    retention->rope = table_of_heads(retention->key_dim, retention->num_heads);
  }
}

namespace {

// `got`: what stands in the block.
[[noreturn]] void refuse_block(std::size_t block, const std::string& expected, const std::string& got) {
  throw InvalidArgument("TransformerStack", "spec.blocks", expected,
                        "block " + std::to_string(block) + ": " + got);
}

// The first option of an attention that reads positions; "" if there is none.
std::string reader_of_positions(const AttentionOptions& attention) {
  if (attention.rope) return "rope";
  if (!attention.spec.mods.empty()) return "mods[0] = " + to_string(attention.spec.mods.front());
  if (!(attention.spec.mask == Mask(Everything{}))) return "mask = " + to_string(attention.spec.mask);
  return "";
}

// Merged rows have no position, so what reads positions may not stand behind a merging.
void check_merging(const StackSpec& spec) {
  bool merged = false;
  for (std::size_t i = 0; i < spec.blocks.size(); ++i) {
    const BlockSpec& block = spec.blocks[i];
    const auto* attention = std::get_if<AttentionOptions>(&block.mixer);
    if (merged || block.merging) {
      if (!attention)
        refuse_block(i, "attention in a block that merges rows and behind it", mixer_name(block.mixer));
      if (attention->compression)
        refuse_block(i, "no compression in a block that merges rows and behind it",
                     name_of(*attention->compression));
    }
    const std::string reader = merged ? reader_of_positions(*attention) : "";
    if (!reader.empty())
      refuse_block(i, "attention without rope, mods and mask behind a block that merges rows", reader);
    if (block.merging && !(block.merging->share >= 0.0 && block.merging->share <= 0.5))
      refuse_block(i, "a share of merged rows in [0, 0.5]",
                   "merging.share = " + std::to_string(block.merging->share));
    merged = merged || block.merging;
  }
}

// A stack's blocks share one mask, and recurrences of both sides need another one than those of the past.
void check_recurrences(const StackSpec& spec) {
  const auto described = [&](std::size_t i) {
    const BlockSpec& block = spec.blocks[i];
    return std::string(mixer_name(block.mixer)) +
           (block.recurrence_sees == Sees::both_sides ? " that sees both sides" : " that sees the past");
  };
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < spec.blocks.size(); ++i) {
    const BlockSpec& block = spec.blocks[i];
    const bool both_sides = block.recurrence_sees == Sees::both_sides;
    if (std::holds_alternative<AttentionOptions>(block.mixer)) {
      if (both_sides)
        refuse_block(i, "recurrence_sees = both_sides only for recurrences: a mask says what attention sees",
                     "attention with recurrence_sees = both_sides");
      continue;
    }
    if (both_sides && std::holds_alternative<BlockAttentionOptions>(block.mixer))
      refuse_block(i, "block attention that sees the past", described(i));
    if (first && spec.blocks[*first].recurrence_sees != block.recurrence_sees)
      refuse_block(*first, "mixers that all see the past, or all see both sides",
                   described(*first) + ", and block " + std::to_string(i) + ": " + described(i));
    first = i;
  }
}

void check_side_by_side(const StackSpec& spec) {
  for (std::size_t i = 0; i < spec.blocks.size(); ++i) {
    const BlockSpec& block = spec.blocks[i];
    if (block.parts == BlockSpec::Parts::in_turn) continue;
    const auto expect = [&](bool good, const std::string& expected, const std::string& got) {
      if (!good) refuse_block(i, expected + " where parts are side by side", got);
    };
    expect(!std::holds_alternative<NoMlp>(block.mlp), "a feed-forward part", "mlp = NoMlp");
    expect(block.mixer_norm == NormPlace::pre, "mixer_norm = pre",
           std::string("mixer_norm = ") + name_of(block.mixer_norm));
    expect(block.mlp_norm == NormPlace::pre || block.mlp_norm == NormPlace::none, "mlp_norm = pre or none",
           std::string("mlp_norm = ") + name_of(block.mlp_norm));
    expect(!block.cross, "no cross-attention", "cross-attention");
    expect(!block.merging, "no merging", "merging");
  }
}

void check_sizes(const StackSpec& spec) {
  if (spec.rounds < 1)
    throw InvalidArgument("TransformerStack", "spec.rounds", "at least 1", std::to_string(spec.rounds));
  if (spec.input_dim && *spec.input_dim < 1)
    throw InvalidArgument("TransformerStack", "spec.input_dim", "at least 1, or nothing",
                          std::to_string(*spec.input_dim));
  const bool merges =
      std::ranges::any_of(spec.blocks, [](const BlockSpec& b) { return b.merging.has_value(); });
  if (merges && spec.rounds > 1)
    throw InvalidArgument("TransformerStack", "spec.rounds", "1, because a block merges rows",
                          std::to_string(spec.rounds));
}

}  // namespace

TransformerStack::TransformerStack(ParameterSet& set, const std::string& name, const StackSpec& spec)
    : spec_(spec), made_(true) {
  check_merging(spec);
  check_recurrences(spec);
  check_side_by_side(spec);
  check_sizes(spec);
  layers_.reserve(spec.blocks.size());  // blocks read the arguments of the first while others are made
  const MultiHeadAttention* first = nullptr;
  for (std::size_t i = 0; i < spec.blocks.size(); ++i) {
    const BlockSpec& block = spec.blocks[i];
    const std::string layer = name + ".layers." + std::to_string(i);
    const auto branch = [&](const std::string& part, NormPlace place) {
      Branch made{.place = place, .norm = {}, .end = {}, .factor = block.branch_factor};
      if (place != NormPlace::none) made.norm = Norm(set, layer + part + "_layer_norm", spec.dim, block.norm);
      if (place == NormPlace::sandwich)
        made.end = Norm(set, layer + part + "_end_norm", spec.dim, block.norm);
      return made;
    };
    const bool shares = spec.arguments == StackSpec::Arguments::of_the_first;
    Layer made;
    if (const auto* attention = std::get_if<AttentionOptions>(&block.mixer)) {
      made.self.emplace(set, layer + ".self_attn", spec.dim, *attention, shares ? first : nullptr);
    } else if (const auto* blocks = std::get_if<BlockAttentionOptions>(&block.mixer)) {
      made.blocks.emplace(set, layer + ".mixer", spec.dim, *blocks);
    } else {
      const auto& options = std::get<RecurrentOptions>(block.mixer);
      made.recurrent.emplace(set, layer + ".mixer", spec.dim, options);
      if (block.recurrence_sees == Sees::both_sides)
        made.back.emplace(set, layer + ".mixer_back", spec.dim, options);
    }
    if (block.cross) made.memory.emplace(set, layer + ".encoder_attn", spec.dim, *block.cross);
    made.self_branch = branch(".self_attn", block.mixer_norm);
    if (block.cross) made.memory_branch = branch(".encoder_attn", block.cross_norm);
    if (!std::holds_alternative<NoMlp>(block.mlp)) made.final_branch = branch(".final", block.mlp_norm);
    made.feed_forward = FeedForward(set, layer, spec.dim, block.mlp);
    made.dropout = block.dropout;
    made.merging = block.merging;
    made.parts = block.parts;
    for (const Layer& before : layers_) {
      if (made.self && before.self) made.self->share_plans(*before.self);
      if (made.memory && before.memory) made.memory->share_plans(*before.memory);
    }
    layers_.push_back(std::move(made));
    if (!first && layers_.back().self) first = &*layers_.back().self;
  }
  const std::vector<Layer> round = layers_;
  for (std::int64_t r = 1; r < spec.rounds; ++r) layers_.insert(layers_.end(), round.begin(), round.end());
  const std::int64_t input_dim = spec.input_elements();
  if (const auto* learned = std::get_if<LearnedPositions>(&spec.positions)) {
    positions_ =
        &set.normal(name + ".embed_positions.weight", {learned->count + learned->first_row, input_dim},
                    1.0f / std::sqrt(static_cast<float>(input_dim)));
    positions_->gives_rows = true;
  }
  if (spec.embedding_norm)
    embedding_norm_.emplace(set, name + ".layernorm_embedding", input_dim, *spec.embedding_norm);
  if (spec.input_dim) projection_ = Linear(set, name + ".project_in", input_dim, spec.dim);
  if (spec.final_norm) norm_.emplace(set, name + ".layer_norm", spec.dim, *spec.final_norm);
}

namespace {

void check_rows(const Var& x, std::int64_t dim) {
  if (x.shape().rank() != 3 || x.size(2) != dim)
    throw InvalidArgument("TransformerStack::enter", "x", "[B, L, " + std::to_string(dim) + "]",
                          to_string(x.shape()));
}

}  // namespace

bool TransformerStack::reads_memory() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.memory.has_value(); });
}

bool TransformerStack::merges_rows() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.merging.has_value(); });
}

const RecurrentMixer* TransformerStack::recurrence(std::size_t layer) const {
  const std::optional<RecurrentMixer>& found = layers_.at(layer).recurrent;
  return found ? &*found : nullptr;
}

const BlockAttention* TransformerStack::block_attention(std::size_t layer) const {
  const std::optional<BlockAttention>& found = layers_.at(layer).blocks;
  return found ? &*found : nullptr;
}

void TransformerStack::check_mask(const Layer& layer, const Mask& mask) {
  if (layer.back && !(mask == Mask(Everything{})) && !(mask == Mask(KeyLengths{})))
    throw InvalidArgument("TransformerStack", "mask",
                          "Everything{} or KeyLengths{}, because a block's recurrences see both sides",
                          to_string(mask));
  if (layer.recurrent && !layer.back && !(mask == Mask(Causal{})))
    throw InvalidArgument("TransformerStack", "mask", "Causal{}, because a block has a recurrence",
                          to_string(mask));
  if (layer.blocks && !(mask == Mask(Causal{})))
    throw InvalidArgument("TransformerStack", "mask", "Causal{}, because a block has block attention",
                          to_string(mask));
}

Var TransformerStack::enter(Context& context, const Var& x, std::int64_t first) const {
  check_made("TransformerStack", "spec", made_);
  check_rows(x, spec_.input_elements());
  KeptVector<std::int64_t> positions(static_cast<std::size_t>(x.size(1)));
  std::iota(positions.begin(), positions.end(), first);
  return enter_at(context, x, positions);
}

Var TransformerStack::enter(Context& context, const Var& x, std::span<const std::int64_t> starts,
                            std::span<const std::int64_t> first) const {
  check_made("TransformerStack", "spec", made_);
  check_rows(x, spec_.input_elements());
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("TransformerStack::enter", argument, std::move(expected), std::move(got));
  };
  if (x.size(0) != 1) refuse("x", "[1, L, dim] of a packed batch", to_string(x.shape()));
  check_starts("TransformerStack::enter", "starts", starts, x.size(1), " of x");
  if (first.size() + 1 != starts.size())
    refuse("first", std::to_string(starts.size() - 1) + ", one for each entry", std::to_string(first.size()));
  KeptVector<std::int64_t> positions;
  positions.reserve(static_cast<std::size_t>(x.size(1)));
  for (std::size_t e = 0; e < first.size(); ++e) {
    for (std::int64_t row = starts[e]; row < starts[e + 1]; ++row)
      positions.push_back(first[e] + row - starts[e]);
  }
  return enter_at(context, x, positions);
}

Var TransformerStack::enter_at(Context& context, const Var& x,
                               std::span<const std::int64_t> positions) const {
  Var rows = x;
  if (const auto* sines = std::get_if<SinusoidalPositions>(&spec_.positions)) {
    KeptVector<std::int64_t> shifted(positions.begin(), positions.end());
    for (std::int64_t& position : shifted) position += sines->first;
    rows = add_positions(x, sinusoidal_positions(shifted, spec_.input_elements(), sines->base));
  }
  if (const auto* learned = std::get_if<LearnedPositions>(&spec_.positions)) {
    KeptVector<std::int32_t> ids;
    ids.reserve(positions.size() * static_cast<std::size_t>(x.size(0)));
    for (std::int64_t b = 0; b < x.size(0); ++b) {
      for (const std::int64_t position : positions) {
        // Rows before that of position 0 belong to ids that are not counted (RoBERTa's padding).
        if (position < -learned->first_row || position >= learned->count)
          throw InvalidArgument("TransformerStack::enter", "first",
                                "positions in [" + std::to_string(-learned->first_row) + ", " +
                                    std::to_string(learned->count) + ")",
                                std::to_string(position));
        ids.push_back(static_cast<std::int32_t>(learned->first_row + position));
      }
    }
    rows = add(x, reshape(autograd::embedding(context.use(*positions_), ids), x.shape()));
  }
  if (embedding_norm_) rows = (*embedding_norm_)(context, rows);
  rows = context.dropout(rows, spec_.dropout);
  return projection_.weight ? projection_(context, rows) : rows;
}

AttentionPooling::AttentionPooling(ParameterSet& set, const std::string& name, std::int64_t dim,
                                   std::int64_t num_heads, std::int64_t queries)
    : query(&set.normal(name + ".query", {queries, dim}, 1.0f)),
      attention(set, name, dim, {.num_query_heads = num_heads}) {}

Var AttentionPooling::operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths,
                                 Tensor* weights) const {
  MultiHeadAttention::Call call;
  call.weights = weights;
  if (!lengths.empty()) {
    call.mask = KeyLengths{};
    call.key_lengths = lengths;
  }
  check_made("AttentionPooling", "query", query);
  return attention(context, repeated_rows(context, *query, x.size(0)), x, call);
}

}  // namespace fovea::nn
