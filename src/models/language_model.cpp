#include "fovea/models/language_model.h"

#include <cmath>

#include "models/stack.h"

namespace fovea::models {
namespace {

const LanguageModelConfig& checked(const LanguageModelConfig& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"vocabulary", config.vocabulary}, {"dim", config.dim},       {"feed_forward", config.feed_forward},
      {"heads", config.heads},           {"layers", config.layers}, {"positions", config.positions}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) throw InvalidArgument("LanguageModel", name, "at least 1", std::to_string(size));
  }
  if (config.dim % (2 * config.heads) != 0) {
    throw InvalidArgument("LanguageModel", "dim",
                          "an even multiple of " + std::to_string(config.heads) + " heads",
                          std::to_string(config.dim));
  }
  return config;
}

nn::StackSpec spec_of(const LanguageModelConfig& config) {
  nn::StackSpec spec = stack_spec(config, config.layers, CrossAttention::without);
  nn::add_rotary(spec, config.positions);
  return spec;
}

}  // namespace

LanguageModel::LanguageModel(const LanguageModelConfig& config, std::uint64_t seed)
    : config_(checked(config)),
      parameters_(std::make_unique<nn::ParameterSet>(seed)),
      embedding_(*parameters_, "model.embed_tokens", config.vocabulary, config.dim),
      stack_(*parameters_, "model", spec_of(config)) {
  embedding_.table->multiplies_rows = true;
}

nn::Var LanguageModel::embed(nn::Context& context, std::span<const std::int32_t> ids,
                             std::int64_t size) const {
  const auto length = static_cast<std::int64_t>(ids.size()) / size;
  const nn::Var tokens = embedding_(context, ids, std::sqrt(static_cast<float>(config_.dim)));
  return stack_.enter(context, reshape(tokens, {size, length, config_.dim}));
}

nn::Var LanguageModel::hidden(nn::Context& context, const Padded& tokens,
                              const std::function<Tensor*(std::string_view, std::size_t)>& weights) {
  return stack_(context, embed(context, tokens.ids, tokens.size), {.mask = Causal{}, .weights = weights});
}

nn::Var LanguageModel::loss(nn::Context& context, const Padded& tokens, const LossOptions& options,
                            autograd::CrossEntropyStats* stats) {
  const std::int64_t read = tokens.length - 1;
  if (read < 1) {
    throw InvalidArgument("LanguageModel::loss", "tokens", "a sequence of two tokens at least",
                          std::to_string(tokens.length));
  }
  Padded input;
  input.size = tokens.size;
  input.length = read;
  std::vector<std::int32_t> targets;
  for (std::int64_t b = 0; b < tokens.size; ++b) {
    const std::int32_t* row = tokens.ids.data() + b * tokens.length;
    const std::int64_t length = tokens.lengths[static_cast<std::size_t>(b)];
    input.ids.insert(input.ids.end(), row, row + read);
    input.lengths.push_back(std::min(length, read));
    for (std::int64_t i = 1; i <= read; ++i) targets.push_back(i < length ? row[i] : -1);
  }
  const nn::Var rows = reshape(hidden(context, input), {tokens.size * read, config_.dim});
  return autograd::linear_cross_entropy(rows, context.use(*embedding_.table), {}, targets, options.smoothing,
                                        {.scale = options.scale}, stats);
}

Tensor LanguageModel::log_probabilities(const nn::Var& hidden) {
  const Tensor rows = hidden.value().reshape({hidden.value().count() / config_.dim, config_.dim});
  nn::Context inference;
  Tensor logits =
      autograd::linear(rows, inference.use(*embedding_.table), {}, autograd::Products::by_row).value();
  autograd::log_softmax_rows(logits);
  return logits;
}

std::vector<CacheLayer> LanguageModel::cache_layers(const CacheStore& store) const {
  return stack_.cache_layers(store);
}

nn::Var LanguageModel::extend(std::span<const std::int32_t> ids, KvCache& cache, Sequence& sequence) {
  const Next next{.sequence = &sequence, .ids = ids};
  return extend({&next, 1}, cache);
}

nn::Var LanguageModel::extend(std::span<const Next> next, KvCache& cache) {
  std::vector<std::int32_t> all;
  std::vector<std::int64_t> starts{0};
  std::vector<Sequence*> entries;
  std::vector<std::span<const std::int32_t>> known;
  for (const Next& one : next) {
    if (one.ids.empty()) throw InvalidArgument("LanguageModel::extend", "ids", "at least one", "none");
    all.insert(all.end(), one.ids.begin(), one.ids.end());
    starts.push_back(std::ssize(all));
    entries.push_back(one.sequence);
    known.push_back(one.known ? one.ids : std::span<const std::int32_t>());
  }
  if (next.empty()) throw InvalidArgument("LanguageModel::extend", "next", "at least one sequence", "none");
  nn::Context inference{.products = autograd::Products::by_row};
  return stack_.extend(inference, embed(inference, all, 1),
                       {.cache = cache, .entries = entries, .starts = starts, .ids = known},
                       {.mask = Causal{}});
}

}  // namespace fovea::models
