#include "fovea/models/language_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "cache/checks.h"
#include "fovea/core/kept_vector.h"
#include "models/batch_checks.h"
#include "models/stack.h"

namespace fovea::models {
namespace {

// Its config() has no mixers where all are attention: that is the model of a config without a list.
LanguageModelConfig checked(LanguageModelConfig config) {
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
  const std::pair<const char*, float> rates[] = {{"dropout", config.dropout},
                                                 {"attention_dropout", config.attention_dropout}};
  for (const auto& [name, rate] : rates) {
    if (!(rate >= 0.0f && rate < 1.0f))
      throw InvalidArgument("LanguageModel", name, "a rate in [0, 1)", std::to_string(rate));
  }
  check_mixers("LanguageModel", "mixers", config.mixers, config.layers);
  return config;
}

nn::StackSpec spec_of(const LanguageModelConfig& config) {
  nn::StackSpec spec = stack_spec(config, config.layers, CrossAttention::without);
  set_mixers(spec, config.mixers, config.heads, nn::Sees::the_past);
  nn::add_rotary(spec, config.positions);
  return spec;
}

}  // namespace

LanguageModel::LanguageModel(const LanguageModelConfig& config, std::uint64_t seed)
    : LanguageModel(config, nn::ParameterSet(seed)) {}

LanguageModel::LanguageModel(const LanguageModelConfig& config, nn::ParameterSet parameters)
    : config_(checked(config)),
      has_config_(true),
      embedding_factor_(std::sqrt(static_cast<float>(config.dim))),
      parameters_(std::make_unique<nn::ParameterSet>(std::move(parameters))),
      embedding_(*parameters_, "model.embed_tokens", config.vocabulary, config.dim),
      stack_(*parameters_, "model", spec_of(config)) {
  embedding_.table->multiplies_rows = true;
}

namespace {

LanguageModelConfig sizes_of(const LanguageModelSpec& spec) {
  LanguageModelConfig config{.vocabulary = spec.vocabulary,
                             .dim = spec.stack.dim,
                             .layers = spec.stack.layers(),
                             .positions = spec.positions};
  if (spec.stack.blocks.empty()) return config;
  const nn::BlockSpec& block = spec.stack.blocks.front();
  if (const auto* attention = std::get_if<nn::AttentionOptions>(&block.mixer))
    config.heads = attention->num_query_heads;
  config.feed_forward = std::visit(
      []<class M>(const M& mlp) {
        if constexpr (std::is_same_v<M, nn::NoMlp>)
          return std::int64_t{0};
        else
          return mlp.inner;
      },
      block.mlp);
  return config;
}

}  // namespace

LanguageModel::LanguageModel(const LanguageModelSpec& spec, nn::ParameterSet::Source source)
    : config_(sizes_of(spec)),
      embedding_factor_(spec.embedding_factor),
      logit_factor_(spec.logit_factor),
      logit_cap_(spec.logit_cap),
      parameters_(std::make_unique<nn::ParameterSet>(std::move(source))),
      embedding_(*parameters_, "model.embed_tokens", spec.vocabulary, spec.stack.input_elements()),
      stack_(*parameters_, "model", spec.stack) {
  if (spec.dense) {
    dense_ = nn::Linear(*parameters_, "head.dense", spec.stack.dim, spec.stack.dim, spec.dense->bias);
    dense_activation_ = spec.dense->activation;
    if (spec.dense->norm) dense_norm_.emplace(*parameters_, "head.norm", spec.stack.dim, *spec.dense->norm);
  }
  if (spec.output == LanguageModelSpec::Output::own)
    output_ = &parameters_->xavier("lm_head.weight", {spec.vocabulary, spec.stack.dim});
  else if (spec.stack.input_elements() != spec.stack.dim)
    throw InvalidArgument("LanguageModel", "spec.stack.input_dim",
                          std::to_string(spec.stack.dim) + ", because the embeddings' table makes the logits",
                          std::to_string(spec.stack.input_elements()));
  if (spec.bias == nn::Linear::Bias::with)
    bias_ = &parameters_->constant("lm_head.bias", {spec.vocabulary}, 0.0f);
  output_matrix().multiplies_rows = true;
}

std::int64_t LanguageModel::longest() const {
  const auto reads_positions = [](const nn::BlockSpec& block) {
    const auto* recurrence = std::get_if<nn::RecurrentOptions>(&block.mixer);
    const auto* retention = recurrence ? std::get_if<nn::RetentionOptions>(recurrence) : nullptr;
    return !recurrence || (retention && retention->rope);
  };
  const nn::StackSpec& spec = stack_.spec();
  const bool limited = !std::holds_alternative<nn::NoPositions>(spec.positions) ||
                       std::ranges::any_of(spec.blocks, reads_positions);
  return limited ? config_.positions : std::numeric_limits<std::int64_t>::max();
}

std::int64_t LanguageModel::longest_kept() const {
  std::int64_t most = longest();
  for (const nn::BlockSpec& block : stack_.spec().blocks) {
    const auto* attention = std::get_if<nn::AttentionOptions>(&block.mixer);
    if (attention && attention->rope && attention->rope->changes_behind())
      most = std::min(most, *attention->rope->changes_behind());
  }
  return most;
}

std::string LanguageModel::reads(Reuse reuse) const {
  const std::int64_t kept = longest_kept();
  if (reuse == Reuse::off || kept == longest()) return "as the model reads " + std::to_string(longest());
  return "because keys that are kept were rotated for texts of up to " + std::to_string(kept) +
         " tokens, and longer ones have other rotary frequencies";
}

void LanguageModel::check_length(const char* function, const char* argument, std::int64_t before,
                                 std::int64_t length, Reuse reuse) const {
  const std::int64_t most = reuse == Reuse::on ? longest_kept() : longest();
  if (before > most || length > most - before)
    throw InvalidArgument(function, argument,
                          "at most " + std::to_string(std::max<std::int64_t>(most - before, 0)) +
                              (before > 0 ? " behind " + std::to_string(before) + " tokens" : " tokens") +
                              ", " + reads(reuse),
                          std::to_string(length));
}

// Every row is rotated as one of a text with `read` tokens.
void LanguageModel::check_padding(const char* function, const Padded& tokens, std::int64_t read) const {
  const auto is_shorter = [&](std::int64_t length) { return length < tokens.length; };
  if (read <= longest_kept() || std::ranges::none_of(tokens.lengths, is_shorter)) return;
  throw InvalidArgument(function, "tokens",
                        "texts of one length, where more than " + std::to_string(longest_kept()) +
                            " tokens have other rotary frequencies",
                        std::to_string(tokens.size) + " of up to " + std::to_string(tokens.length));
}

nn::Var LanguageModel::embed(nn::Context& context, std::span<const std::int32_t> ids,
                             std::int64_t size) const {
  const auto length = static_cast<std::int64_t>(ids.size()) / size;
  const nn::Var tokens = embedding_(context, ids, embedding_factor_);
  return stack_.enter(context, reshape(tokens, {size, length, stack_.spec().input_elements()}));
}

nn::Var LanguageModel::hidden(nn::Context& context, const Padded& tokens,
                              const std::function<Tensor*(std::string_view, std::size_t)>& weights,
                              const std::function<Tensor*(std::size_t)>& log_decays) {
  check("LanguageModel::hidden", tokens);
  check_length("LanguageModel::hidden", "tokens", 0, tokens.length, Reuse::off);
  check_padding("LanguageModel::hidden", tokens, tokens.length);
  return stack_(context, embed(context, tokens.ids, tokens.size),
                {.mask = Causal{}, .weights = weights, .log_decays = log_decays});
}

nn::Var LanguageModel::loss(nn::Context& context, const Padded& tokens, const LossOptions& options,
                            autograd::CrossEntropyStats* stats) {
  check("LanguageModel::loss", tokens);
  const std::int64_t read = tokens.length - 1;
  if (read < 1) {
    throw InvalidArgument("LanguageModel::loss", "tokens", "a sequence of two tokens at least",
                          std::to_string(tokens.length));
  }
  if (std::holds_alternative<nn::LearnedPositions>(stack_.spec().positions))
    check_length("LanguageModel::loss", "tokens", 0, read, Reuse::off);
  check_padding("LanguageModel::loss", tokens, read);
  if (logit_cap_)
    throw InvalidArgument("LanguageModel::loss", "model", "one without a cap of logits",
                          "a cap of " + std::to_string(*logit_cap_));
  KeptVector<std::int32_t> ids, targets;
  ids.reserve(static_cast<std::size_t>(tokens.size * read));
  targets.reserve(static_cast<std::size_t>(tokens.size * read));
  for (std::int64_t b = 0; b < tokens.size; ++b) {
    const std::int32_t* row = tokens.ids.data() + b * tokens.length;
    const std::int64_t length = tokens.lengths[static_cast<std::size_t>(b)];
    ids.insert(ids.end(), row, row + read);
    for (std::int64_t i = 1; i <= read; ++i) targets.push_back(i < length ? row[i] : -1);
  }
  nn::Var rows = stack_(context, embed(context, ids, tokens.size), {.mask = Causal{}});
  rows = before_output(context, reshape(rows, {tokens.size * read, config_.dim}));
  nn::Var bias = output_bias(context);
  if (logit_factor_ != 1.0f) {
    rows = scale(rows, logit_factor_);
    if (!bias.empty()) bias = scale(bias, logit_factor_);
  }
  return autograd::linear_cross_entropy(rows, context.use(output_matrix()), bias, targets, options.smoothing,
                                        options.reduction, stats);
}

nn::Var LanguageModel::before_output(nn::Context& context, const nn::Var& rows) const {
  if (!dense_.weight) return rows;
  const nn::Var x = activate(dense_activation_, dense_(context, rows));
  return dense_norm_ ? (*dense_norm_)(context, x) : x;
}

Tensor LanguageModel::logits(const nn::Var& hidden) {
  check_rows("LanguageModel::logits", "hidden", hidden, config_.dim);
  const Tensor rows = hidden.value().reshape({hidden.value().count() / config_.dim, config_.dim});
  nn::Context inference{.products = autograd::Products::by_row};
  Tensor logits = autograd::linear(before_output(inference, rows), inference.use(output_matrix()),
                                   output_bias(inference), autograd::Products::by_row)
                      .value();
  if (logit_factor_ != 1.0f || logit_cap_) autograd::scale_and_cap(logits, logit_factor_, logit_cap_);
  return logits;
}

Tensor LanguageModel::log_probabilities(const nn::Var& hidden) {
  Tensor result = logits(hidden);
  autograd::log_softmax_rows(result);
  return result;
}

std::vector<double> token_log_probabilities(LanguageModel& model, std::span<const std::int32_t> ids) {
  const std::int64_t length = std::ssize(ids), longest = model.longest();
  if (length < 2 || length > longest)
    throw InvalidArgument("token_log_probabilities", "ids", "from 2 to " + std::to_string(longest),
                          std::to_string(length));
  nn::Context inference;
  const nn::Var rows = model.hidden(
      inference, {.size = 1, .length = length, .ids = {ids.begin(), ids.end()}, .lengths = {length}});
  constexpr std::int64_t piece = 128;  // rows whose logits are in memory at once
  std::vector<double> result;
  for (std::int64_t begin = 0; begin < length - 1; begin += piece) {
    const std::int64_t count = std::min(piece, length - 1 - begin);
    const Tensor next = model.log_probabilities(autograd::slice(rows, 1, begin, count).value());
    for (std::int64_t i = 0; i < count; ++i)
      result.push_back(next.data<float>()[i * next.size(1) + ids[static_cast<std::size_t>(begin + i) + 1]]);
  }
  return result;
}

std::vector<CacheLayer> LanguageModel::cache_layers(const CacheStore& store) const {
  return stack_.cache_layers(store);
}

nn::Var LanguageModel::extend(std::span<const std::int32_t> ids, KvCache& cache, Sequence& sequence) {
  const Next next{.sequence = &sequence, .ids = ids};
  return extend({&next, 1}, cache);
}

nn::Var LanguageModel::extend(std::span<const Next> next, KvCache& cache,
                              const std::function<void(const nn::Var&)>& before_commit) {
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
  cache::check_different(entries, [](const char* expected, const char* got) {
    throw InvalidArgument("LanguageModel::extend", "next", expected, got);
  });
  std::vector<std::int64_t> first;
  for (const Next& one : next) {
    first.push_back(cache.length(*one.sequence));
    check_length("LanguageModel::extend", "ids", first.back(), std::ssize(one.ids), Reuse::on);
  }
  nn::Context inference{.products = autograd::Products::by_row};
  const nn::Var tokens = reshape(embedding_(inference, all, embedding_factor_),
                                 {1, std::ssize(all), stack_.spec().input_elements()});
  return stack_.extend(
      inference, stack_.enter(inference, tokens, starts, first),
      {.cache = cache, .entries = entries, .starts = starts, .ids = known, .before_commit = before_commit},
      {.mask = Causal{}});
}

}  // namespace fovea::models
