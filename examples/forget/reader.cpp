#include "reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace forget {
namespace {

using namespace fovea;

const Mask near_mask = Causal{} & SlidingWindow{.lookback = kNear};

std::int32_t best_of(const float* logits) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + kCities) - logits);
}

}  // namespace

Reader::Reader(std::uint64_t seed, Mask mask)
    : parameters_(seed),
      words_(parameters_, "embed_tokens", vocabulary_size(), kDim),
      near_(parameters_, "near",
            nn::stack_of({.layers = 1, .dim = kDim, .feed_forward = 2 * kDim, .heads = kHeads})),
      stack_(parameters_, "decoder",
             nn::stack_of({.layers = kLayers, .dim = kDim, .feed_forward = 2 * kDim, .heads = kHeads})),
      answer_(parameters_, "answer", kDim, kCities),
      mask_(std::move(mask)) {
  nn::start_keys_as_queries(parameters_);
}

nn::Var Reader::embed(nn::Context& context, std::span<const std::int32_t> words, std::int64_t first,
                      std::int64_t batch) const {
  const std::int64_t length = static_cast<std::int64_t>(words.size()) / batch;
  const nn::Var embedded = words_(context, words, std::sqrt(static_cast<float>(kDim)));
  return nn::add_positions(reshape(embedded, {batch, length, kDim}),
                           nn::sinusoidal_positions(first, length, kDim));
}

nn::Var Reader::hidden(nn::Context& context, std::span<const std::int32_t> words, std::int64_t batch,
                       Tensor* weights) const {
  const nn::Var near = near_(context, embed(context, words, 0, batch), {.mask = near_mask});
  return stack_(context, near, {.mask = mask_, .weights = [&](auto, std::size_t layer) {
                                  return layer + 1 == kLayers ? weights : nullptr;
                                }});
}

nn::Var Reader::loss(nn::Context& context, const std::vector<Story>& stories) const {
  const auto batch = static_cast<std::int64_t>(stories.size());
  std::vector<std::int32_t> words, targets;
  std::int64_t questions = 0;
  for (const Story& story : stories) {
    const auto begin = targets.size();
    words.insert(words.end(), story.words.begin(), story.words.end());
    targets.resize(words.size(), -1);
    for (const Question& q : story.questions)
      targets[begin + static_cast<std::size_t>(q.position)] = q.answer;
    questions += static_cast<std::int64_t>(story.questions.size());
  }
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(questions, 1));
  return autograd::linear_cross_entropy(
      reshape(hidden(context, words, batch), {static_cast<std::int64_t>(words.size()), kDim}),
      context.use(*answer_.weight), context.use(*answer_.bias), targets, 0.0f, {.scale = share});
}

std::vector<std::int32_t> Reader::answers(const Story& story) const {
  nn::Context context;
  const Tensor logits = answer_(context, hidden(context, story.words, 1)).value();
  std::vector<std::int32_t> answers;
  for (const Question& q : story.questions)
    answers.push_back(best_of(logits.data<float>() + q.position * kCities));
  return answers;
}

Reader::Decoded Reader::decode(const Story& story) const {
  nn::Context context;
  const auto length = static_cast<std::int64_t>(story.words.size());
  nn::TransformerStack::Cache near = near_.start(context), cache = stack_.start(context);
  Decoded decoded;
  auto asked = story.questions.begin();
  for (std::int64_t position = 0; position < length; ++position) {
    near_.forget(near, near_mask, length);
    stack_.forget(cache, mask_, length);
    const std::int32_t word = story.words[static_cast<std::size_t>(position)];
    const nn::Var joined =
        near_.extend(context, embed(context, {&word, 1}, position, 1), near, {.mask = near_mask});
    const nn::Var row = stack_.extend(context, joined, cache, {.mask = mask_});
    decoded.peak_bytes = std::max(decoded.peak_bytes, near.bytes() + cache.bytes());
    if (asked == story.questions.end() || asked->position != position) continue;
    decoded.answers.push_back(best_of(answer_(context, row).value().data<float>()));
    ++asked;
  }
  return decoded;
}

std::vector<float> Reader::attention(const Story& story, std::int64_t position) const {
  nn::Context context;
  Tensor weights;
  hidden(context, story.words, 1, &weights);
  const auto length = static_cast<std::int64_t>(story.words.size());
  std::vector<float> mean(story.words.size(), 0.0f);
  for (std::int64_t head = 0; head < kHeads; ++head) {
    const float* row = weights.data<float>() + (head * length + position) * length;
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += row[i] / static_cast<float>(kHeads);
  }
  return mean;
}

std::vector<float> Reader::on_facts(const Story& story) const {
  nn::Context context;
  Tensor weights;
  hidden(context, story.words, 1, &weights);
  const auto length = static_cast<std::int64_t>(story.words.size());
  constexpr std::int64_t name = 3;  // of a fact's words
  std::vector<float> masses;
  for (const Question& q : story.questions) {
    float mass = 0.0f;
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (std::int64_t i = 0; i < kWordsOfFact; ++i)
        mass += weights.data<float>()[(head * length + q.position) * length + q.told - name + i];
    masses.push_back(mass / static_cast<float>(kHeads));
  }
  return masses;
}

}  // namespace forget
