#include "encoders.h"

#include <algorithm>
#include <cmath>

namespace retrieve {
namespace {

using namespace fovea;

constexpr std::int64_t kFeedForward = 2 * kDim, kHeads = 4;

Text joined(const Ids& question, const Ids& passage) {
  Text pair{question, question.size()};
  pair.ids.insert(pair.ids.end(), passage.begin(), passage.end());
  return pair;
}

// The passages, the answer first.
std::vector<Ids> answer_first(const Family& family) {
  std::vector<Ids> offered{family.passages[family.answer]};
  for (std::size_t i = 0; i < family.passages.size(); ++i)
    if (i != family.answer) offered.push_back(family.passages[i]);
  return offered;
}

nn::TransformerStack layer(nn::ParameterSet& set, const std::string& name) {
  return {set, name, nn::stack_of({.layers = 1, .dim = kDim, .feed_forward = kFeedForward, .heads = kHeads})};
}

}  // namespace

Reader::Reader(nn::ParameterSet& set, const std::string& name)
    : words_(set, name + ".embed_tokens", vocabulary_size(), kDim),
      parts_(set, name + ".embed_parts", 2, kDim),
      joining_(layer(set, name + ".joining")),
      seeing_(layer(set, name + ".seeing")),
      summing_(layer(set, name + ".summing")) {}

Reader::Read Reader::operator()(nn::Context& context, std::span<const Text> texts, Tensor* weights) const {
  std::vector<Ids> ids;
  for (const Text& text : texts) ids.push_back(text.ids);
  models::Padded padded = models::pad(ids);
  std::vector<std::int32_t> parts(padded.ids.size(), 1);
  for (std::size_t b = 0; b < texts.size(); ++b)
    std::fill_n(parts.begin() + static_cast<std::ptrdiff_t>(b) * padded.length, texts[b].first_part, 0);
  const float factor = std::sqrt(static_cast<float>(kDim));
  const nn::Var words = add(words_(context, padded.ids, factor), parts_(context, parts, factor));
  const nn::Var x = nn::add_positions(reshape(words, {padded.size, padded.length, kDim}),
                                      nn::sinusoidal_positions(0, padded.length, kDim));
  const Mask all = KeyLengths{}, line = all & SlidingWindow{.lookback = 6, .lookahead = 6};
  const nn::Var joined = joining_(context, x, {.mask = line, .lengths = padded.lengths});
  const nn::Var seen = seeing_(
      context, joined,
      {.mask = all, .lengths = padded.lengths, .weights = [&](auto, std::size_t) { return weights; }});
  return {summing_(context, seen, {.mask = line, .lengths = padded.lengths}), std::move(padded.lengths)};
}

BiEncoder::BiEncoder(std::uint64_t seed)
    : parameters_(seed),
      reader_(parameters_, "encoder"),
      pooling_(parameters_, "pooling", kDim, kHeads, kVector / kDim),
      out_(parameters_, "out", kVector, kVector) {}

nn::Var BiEncoder::vectors(nn::Context& context, std::span<const Text> texts) const {
  const Reader::Read read = reader_(context, texts);
  const nn::Var pooled = pooling_(context, read.rows, read.lengths);
  return normalize_rows(out_(context, reshape(pooled, {pooled.size(0), kVector})));
}

nn::Var BiEncoder::questions(nn::Context& context, std::span<const Ids> texts) const {
  std::vector<Text> marked;
  for (const Ids& ids : texts) marked.push_back({ids, ids.size()});
  return vectors(context, marked);
}

nn::Var BiEncoder::passages(nn::Context& context, std::span<const Ids> texts) const {
  std::vector<Text> marked;
  for (const Ids& ids : texts) marked.push_back({ids, 0});
  return vectors(context, marked);
}

nn::Var BiEncoder::loss(nn::Context& context, const std::vector<Family>& families) const {
  constexpr float kTemperature = 0.05f;
  std::vector<Ids> questions, answers;
  std::vector<std::int32_t> right;
  for (const Family& family : families) {
    right.push_back(static_cast<std::int32_t>(answers.size()));
    questions.push_back(family.question);
    answers.push_back(family.passages[family.answer]);
  }
  const auto asked = static_cast<std::int64_t>(questions.size());
  const nn::Var similar = inner_products(reshape(this->questions(context, questions), {1, asked, kVector}),
                                         reshape(this->passages(context, answers), {1, asked, kVector}));
  const nn::Var loss = cross_entropy(scale(reshape(similar, {asked, asked}), 1.0f / kTemperature), right);
  return scale(loss, 1.0f / static_cast<float>(asked));
}

CrossEncoder::CrossEncoder(std::uint64_t seed)
    : parameters_(seed), reader_(parameters_, "encoder"), out_(parameters_, "out", kDim, 1) {}

nn::Var CrossEncoder::scores(nn::Context& context, std::span<const Text> pairs, Tensor* weights) const {
  const Reader::Read read = reader_(context, pairs, weights);
  return out_(context, autograd::pool(autograd::Pool::max, read.rows, read.lengths));
}

nn::Var CrossEncoder::scores(nn::Context& context, const Ids& question, std::span<const Ids> passages,
                             Tensor* weights) const {
  std::vector<Text> pairs;
  for (const Ids& passage : passages) pairs.push_back(joined(question, passage));
  return reshape(scores(context, pairs, weights), {1, static_cast<std::int64_t>(pairs.size())});
}

nn::Var CrossEncoder::loss(nn::Context& context, const std::vector<Family>& families) const {
  constexpr std::size_t kForeign = 2;
  std::vector<Text> pairs;
  for (std::size_t i = 0; i < families.size(); ++i) {
    std::vector<Ids> offered = answer_first(families[i]);
    for (std::size_t k = 1; k <= kForeign; ++k)
      offered.push_back(families[(i + k) % families.size()].passages[k]);
    for (const Ids& passage : offered) pairs.push_back(joined(families[i].question, passage));
  }
  const auto asked = static_cast<std::int64_t>(families.size());
  const nn::Var logits =
      reshape(scores(context, pairs, nullptr), {asked, static_cast<std::int64_t>(kFamilySize + kForeign)});
  const std::vector<std::int32_t> first(families.size(), 0);
  return scale(cross_entropy(logits, first), 1.0f / static_cast<float>(asked));
}

}  // namespace retrieve
