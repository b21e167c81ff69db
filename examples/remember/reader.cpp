#include "reader.h"

#include "fovea/attention/masks.h"

namespace remember {

using namespace fovea;

nn::Mixer linear_attention() {
  return nn::LinearAttentionOptions{.key_dim = kKeyDim, .value_dim = kDim};
}
nn::Mixer gated_delta() {
  return nn::GatedDeltaOptions{.key_dim = kKeyDim, .value_dim = kDim};
}
nn::Mixer softmax_attention() {
  nn::AttentionOptions options{.head_dim = kKeyDim, .value_dim = kDim};
  options.spec.mods.push_back(AlibiBias{});
  return options;
}

namespace {

nn::StackSpec spec_of(const std::vector<nn::Mixer>& mixers) {
  nn::StackSpec spec =
      nn::stack_of({.layers = std::ssize(mixers), .dim = kDim, .feed_forward = 2 * kDim, .heads = 1});
  for (std::size_t n = 0; n < mixers.size(); ++n) spec.blocks[n].mixer = mixers[n];
  return spec;
}

}  // namespace

Reader::Reader(std::uint64_t seed, const std::vector<nn::Mixer>& mixers)
    : parameters_(seed),
      keys_(parameters_, "keys", kKeys, kDim),
      values_(parameters_, "values", kValues + 1, kDim),
      stack_(parameters_, "stack", spec_of(mixers)),
      answer_(parameters_, "answer", kDim, kValues) {}

nn::Var Reader::embed(nn::Context& context, std::span<const List> lists) const {
  std::vector<std::int32_t> keys, values;
  for (const List& list : lists) {
    keys.insert(keys.end(), list.keys.begin(), list.keys.end());
    values.insert(values.end(), list.values.begin(), list.values.end());
  }
  const std::int64_t size = std::ssize(lists), length = std::ssize(keys) / size;
  const nn::Var tokens = add(keys_(context, keys, 8.0f), values_(context, values, 8.0f));
  return stack_.enter(context, reshape(tokens, {size, length, kDim}));
}

// The rows of the questions, [lists · pairs, dim].
nn::Var Reader::questions(nn::Context& context, std::span<const List> lists, Tensor* weights,
                          std::size_t layer) const {
  const auto keep = [&](std::string_view, std::size_t of) { return of == layer ? weights : nullptr; };
  const nn::Var rows = stack_(context, embed(context, lists), {.mask = Causal{}, .weights = keep});
  const std::int64_t pairs = rows.size(1) / 3;
  return reshape(autograd::slice(rows, 1, 2 * pairs, pairs), {rows.size(0) * pairs, kDim});
}

nn::Var Reader::loss(nn::Context& context, std::span<const List> lists) {
  std::vector<std::int32_t> targets;
  for (const List& list : lists) targets.insert(targets.end(), list.answers.begin(), list.answers.end());
  return autograd::linear_cross_entropy(questions(context, lists), context.use(*answer_.weight),
                                        context.use(*answer_.bias), targets, 0.0f,
                                        {.scale = 1.0f / static_cast<float>(targets.size())});
}

std::vector<std::vector<std::int32_t>> Reader::answers(std::span<const List> lists) {
  nn::Context context;
  const std::vector<std::int32_t> best =
      autograd::argmax_rows(answer_(context, questions(context, lists)).value());
  const std::size_t pairs = best.size() / lists.size();
  std::vector<std::vector<std::int32_t>> result;
  for (std::size_t n = 0; n < lists.size(); ++n)
    result.emplace_back(best.begin() + static_cast<std::ptrdiff_t>(n * pairs),
                        best.begin() + static_cast<std::ptrdiff_t>((n + 1) * pairs));
  return result;
}

Tensor Reader::weights(const List& list, std::size_t layer) {
  nn::Context context;
  Tensor weights;
  questions(context, {&list, 1}, &weights, layer);
  return weights;
}

std::int64_t Reader::bytes_kept(std::int64_t tokens) {
  nn::Context context;
  nn::StackCache cache = stack_.start(context);
  const nn::Var rows(Tensor::zeros(DType::f32, {1, tokens, kDim}));
  stack_.extend(context, rows, cache, {.mask = Causal{}});
  return cache.bytes();
}

}  // namespace remember
