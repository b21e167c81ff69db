#include "network.h"

#include <numeric>

#include "fovea/attention/masks.h"

namespace choose {

using namespace fovea;

Network::Network(std::uint64_t seed, const Contender& contender, std::int64_t parts, std::int64_t classes)
    : contender_(contender),
      parameters_(seed),
      parts_(parameters_, "parts", parts, kDim),
      few_(parameters_, contender.summary),
      stack_(parameters_, "stack", contender.stack),
      output_(parameters_, "output", kDim, classes) {}

nn::Var Network::embed(nn::Context& context, const Tokens& tokens, std::int64_t size,
                       std::int64_t first) const {
  const nn::Var rows =
      autograd::scale(autograd::embedding_sums(context.use(*parts_.table), tokens.parts, tokens.counts),
                      8.0f);  // the square root of kDim
  return stack_.enter(context, reshape(rows, {size, std::ssize(tokens.counts) / size, kDim}), first);
}

// The rows of the questions, [records · kFacts, dim].
nn::Var Network::questions(nn::Context& context, std::span<const Record> records) const {
  Tokens all;
  for (const Record& record : records) {
    const Tokens& tokens = record.tokens;
    all.parts.insert(all.parts.end(), tokens.parts.begin(), tokens.parts.end());
    all.counts.insert(all.counts.end(), tokens.counts.begin(), tokens.counts.end());
  }
  const std::int64_t size = std::ssize(records), length = std::ssize(all.counts) / size;
  std::vector<std::int64_t> asking(kFacts);
  std::iota(asking.begin(), asking.end(), length - kFacts);
  nn::Var rows = embed(context, all, size);
  if (few_) {
    const std::vector<nn::Var> read{few_(context, autograd::slice(rows, 1, 0, length - kFacts)),
                                    autograd::slice(rows, 1, length - kFacts, kFacts)};
    rows = autograd::concat(read, 1);
  }
  rows = stack_(context, rows, {.mask = mask_of(contender_, asking)});
  return reshape(autograd::slice(rows, 1, rows.size(1) - kFacts, kFacts), {size * kFacts, kDim});
}

nn::Var Network::loss(nn::Context& context, std::span<const Record> records) const {
  std::vector<std::int32_t> answers;
  for (const Record& record : records)
    answers.insert(answers.end(), record.answers.begin(), record.answers.end());
  return autograd::linear_cross_entropy(questions(context, records), context.use(*output_.weight),
                                        context.use(*output_.bias), answers, 0.0f,
                                        {.scale = 1.0f / static_cast<float>(answers.size())});
}

std::vector<std::int32_t> Network::answers(const Record& record) const {
  nn::Context context;
  return autograd::argmax_rows(output_(context, questions(context, {&record, 1})).value());
}

Mask Network::text_mask() const {
  // The first characters are seen by all later ones (streaming sinks).
  return contender_.sees == Contender::Sees::window ? mask_of(contender_, {0, 1, 2, 3}) & Causal{}
                                                    : Mask(Causal{});
}

namespace {

Tokens one_part_each(std::span<const std::int32_t> text) {
  return {.parts = {text.begin(), text.end()}, .counts = std::vector<std::int64_t>(text.size(), 1)};
}

}  // namespace

nn::Var Network::text_loss(nn::Context& context, std::span<const std::int32_t> text, std::int64_t size,
                           autograd::CrossEntropyStats* stats) const {
  const nn::Var rows = stack_(context, embed(context, one_part_each(text), size), {.mask = text_mask()});
  const std::int64_t length = std::ssize(text) / size;
  std::vector<std::int32_t> next;
  for (std::int64_t i = 0; i < std::ssize(text); ++i)
    next.push_back((i + 1) % length != 0 ? text[static_cast<std::size_t>(i + 1)] : -1);
  return autograd::linear_cross_entropy(reshape(rows, {std::ssize(text), kDim}), context.use(*output_.weight),
                                        context.use(*output_.bias), next, 0.0f,
                                        {.scale = 1.0f / static_cast<float>(size * (length - 1))}, stats);
}

nn::StackCache Network::start() const {
  nn::Context context;
  return stack_.start(context, {}, {.store = Paged{64}});
}

void Network::read(std::span<const std::int32_t> text, nn::StackCache& cache) const {
  nn::Context context;
  stack_.extend(context, embed(context, one_part_each(text), 1, cache.length()), cache,
                {.mask = text_mask()});
  if (contender_.sees == Contender::Sees::window) stack_.forget(cache, text_mask(), cache.length() + kWindow);
}

}  // namespace choose
