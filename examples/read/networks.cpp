#include "networks.h"

#include <algorithm>

namespace read_example {

using namespace fovea;
using nn::Var;

namespace {

constexpr std::int64_t glance_dim = 48, reader_dim = 64;

// The key that each query takes by hard attention. `weights` receives the softmax of the same scores, from
// which training learns.
Ids choose(const Var& query, const Var& key, Var& weights) {
  const std::int64_t rows = query.size(0), keys = key.size(1);
  const Var queries = reshape(query, {rows, 1, query.size(1)});
  weights = reshape(attention_weights({}, queries, key), {rows, keys});
  const autograd::AttentionCall hard{.spec = {.normalizer = HardArgmax{}}};
  const Tensor taken = attention_weights(hard, queries.value(), key.value()).value();
  return autograd::argmax_rows(taken.reshape({rows, keys}));
}

}  // namespace

Chooser::Chooser(nn::ParameterSet& set, std::int64_t vocabulary)
    : encoder_(set, "glance", {.vocabulary = vocabulary, .dim = glance_dim, .feed_forward = 96, .layers = 1}),
      first_query_(set, "first.query", glance_dim, glance_dim),
      first_key_(set, "first.key", glance_dim, glance_dim),
      second_hidden_(set, "second.hidden", 2 * glance_dim, glance_dim),
      second_query_(set, "second.query", glance_dim, glance_dim),
      second_key_(set, "second.key", glance_dim, glance_dim),
      enough_(&set.normal("second.enough", {1, glance_dim}, 1.0f)) {
  // A sentence that shares words with the question is likely to be taken from the first update on.
  const Tensor& query = first_query_.weight->value;
  std::copy_n(query.data<float>(), query.count(), first_key_.weight->value.data<float>());
}

Var Chooser::glance(nn::Context& context, const std::vector<Ids>& texts) const {
  const models::Padded padded = models::pad(texts);
  return pool(autograd::Pool::mean, encoder_(context, padded), padded.lengths);
}

Chooser::Choice Chooser::operator()(nn::Context& context, std::span<const Question> questions,
                                    const Ids& first) const {
  const auto batch = static_cast<std::int64_t>(questions.size());
  const auto count = static_cast<std::int64_t>(questions[0].sentences.size());
  std::vector<Ids> sentences, words;
  for (const Question& question : questions) {
    sentences.insert(sentences.end(), question.sentences.begin(), question.sentences.end());
    words.push_back(question.words);
  }
  // The latest sentence comes first, so that its position says how old it is.
  const Var seen = nn::add_positions(reshape(glance(context, sentences), {batch, count, glance_dim}),
                                     nn::sinusoidal_positions(0, count, glance_dim));
  const Var asked = glance(context, words);

  Choice choice;
  const Ids found = choose(first_query_(context, asked), first_key_(context, seen), choice.first);
  // The second choice depends on the first: after the object's holder the holder's place has to be found.
  const Ids& from = first.empty() ? found : first;
  const Var both[] = {asked, gather_rows(seen, std::vector<std::int64_t>(from.begin(), from.end()))};
  const Var query = second_query_(context, relu(second_hidden_(context, concat(both, 1))));
  const Var enough = autograd::embedding(context.use(*enough_), Ids(questions.size(), 0));
  const Var keys[] = {second_key_(context, seen), reshape(enough, {batch, 1, glance_dim})};
  const Ids next = choose(query, concat(keys, 1), choice.second);
  for (std::size_t i = 0; i < questions.size(); ++i) choice.taken.push_back({found[i], next[i]});
  return choice;
}

Reader::Reader(nn::ParameterSet& set, std::int64_t vocabulary)
    : encoder_(set, "reader",
               {.vocabulary = vocabulary, .dim = reader_dim, .feed_forward = 128, .layers = 3}),
      answer_(set, "answer", reader_dim, vocabulary) {}

Var Reader::operator()(nn::Context& context, const std::vector<Ids>& texts) const {
  const Var read = encoder_(context, models::pad(texts));
  return answer_(context, reshape(slice(read, 1, 0, 1), {read.size(0), reader_dim}));
}

}  // namespace read_example
