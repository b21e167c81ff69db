#include "reader.h"

#include "fovea/attention/masks.h"
#include "gallery.h"

namespace remember {

using namespace fovea;

nn::Mixer linear_attention() {
  return nn::LinearAttentionOptions{.key_dim = kKeyDim, .value_dim = kDim};
}
nn::Mixer gated_delta() {
  return nn::GatedDeltaOptions{.key_dim = kKeyDim, .value_dim = kDim};
}
nn::Mixer mamba2() {
  return nn::Mamba2Options{.inner = kDim, .head_dim = kDim, .state_dim = kKeyDim};
}
nn::Mixer softmax_attention() {
  nn::AttentionOptions options{.head_dim = kKeyDim, .value_dim = kDim};
  options.spec.mods.push_back(AlibiBias{});
  return options;
}
nn::Mixer plain_attention() {
  return nn::AttentionOptions{.head_dim = kKeyDim, .value_dim = kDim};
}
nn::Mixer rotary_attention() {
  nn::AttentionOptions options{.num_query_heads = 4, .head_dim = kKeyDim / 4, .value_dim = kDim / 4};
  options.rope = nn::Rotary(Rope{.rotary_dim = kKeyDim / 4}, 4096);
  return options;
}
nn::Mixer retention() {
  return nn::RetentionOptions{.num_heads = 4, .key_dim = kKeyDim / 4, .value_dim = kDim};
}

namespace {

nn::StackSpec spec_of(const std::vector<nn::Mixer>& mixers) {
  nn::StackSpec spec =
      nn::stack_of({.layers = std::ssize(mixers), .dim = kDim, .feed_forward = 2 * kDim, .heads = 1});
  for (std::size_t n = 0; n < mixers.size(); ++n) spec.blocks[n].mixer = mixers[n];
  return spec;
}

std::vector<nn::Embedding> tables_of(nn::ParameterSet& parameters, const Vocabulary& vocabulary) {
  std::vector<nn::Embedding> tables;
  for (const Vocabulary::Table& table : vocabulary.tables)
    tables.emplace_back(parameters, table.name, table.size, kDim);
  return tables;
}

}  // namespace

Reader::Reader(std::uint64_t seed, const Vocabulary& vocabulary, const std::vector<nn::Mixer>& mixers)
    : parameters_(seed),
      tables_(tables_of(parameters_, vocabulary)),
      stack_(parameters_, "stack", spec_of(mixers)),
      answer_(parameters_, "answer", kDim, vocabulary.answers) {}

nn::Var Reader::embed(nn::Context& context, std::span<const Exercise> exercises) const {
  const std::int64_t size = std::ssize(exercises), length = std::ssize(exercises[0].ids[0]);
  nn::Var tokens;
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    std::vector<std::int32_t> ids;
    for (const Exercise& exercise : exercises)
      ids.insert(ids.end(), exercise.ids[table].begin(), exercise.ids[table].end());
    const nn::Var rows = tables_[table](context, ids, 8.0f);  // the square root of kDim
    tokens = table == 0 ? rows : add(tokens, rows);
  }
  return stack_.enter(context, reshape(tokens, {size, length, kDim}));
}

// The rows of the questions, [exercises · questions, dim].
nn::Var Reader::questions(nn::Context& context, std::span<const Exercise> exercises, Tensor* weights,
                          std::size_t layer) const {
  const auto keep = [&](std::string_view, std::size_t of) { return of == layer ? weights : nullptr; };
  const nn::Var rows = stack_(context, embed(context, exercises), {.mask = Causal{}, .weights = keep});
  const std::int64_t asked = std::ssize(exercises[0].answers);
  return reshape(autograd::slice(rows, 1, rows.size(1) - asked, asked), {rows.size(0) * asked, kDim});
}

nn::Var Reader::loss(nn::Context& context, std::span<const Exercise> exercises) {
  std::vector<std::int32_t> targets;
  for (const Exercise& exercise : exercises)
    targets.insert(targets.end(), exercise.answers.begin(), exercise.answers.end());
  return autograd::linear_cross_entropy(questions(context, exercises), context.use(*answer_.weight),
                                        context.use(*answer_.bias), targets, 0.0f,
                                        {.scale = 1.0f / static_cast<float>(targets.size())});
}

std::vector<std::vector<std::int32_t>> Reader::answers(std::span<const Exercise> exercises) {
  nn::Context context;
  const std::vector<std::int32_t> best =
      autograd::argmax_rows(answer_(context, questions(context, exercises)).value());
  const std::size_t asked = best.size() / exercises.size();
  std::vector<std::vector<std::int32_t>> result;
  for (std::size_t n = 0; n < exercises.size(); ++n)
    result.emplace_back(best.begin() + static_cast<std::ptrdiff_t>(n * asked),
                        best.begin() + static_cast<std::ptrdiff_t>((n + 1) * asked));
  return result;
}

// The rows of `count` tokens, the first of which is `from`, behind those in the cache.
nn::Var Reader::read(nn::Context& context, const Exercise& exercise, std::int64_t from, std::int64_t count,
                     nn::StackCache& cache) const {
  Exercise part;
  for (const std::vector<std::int32_t>& ids : exercise.ids)
    part.ids.emplace_back(ids.begin() + from, ids.begin() + from + count);
  return stack_.extend(context, embed(context, {&part, 1}), cache, {.mask = Causal{}});
}

Reader::Decoded Reader::decode(const Exercise& exercise) {
  nn::Context context;
  nn::StackCache cache = stack_.start(context, {}, {.store = Paged{64}});
  const std::int64_t length = std::ssize(exercise.ids[0]), asked = std::ssize(exercise.answers);
  read(context, exercise, 0, length - asked, cache);
  Decoded decoded;
  {
    nn::StackCache fork = cache.fork();
    read(context, exercise, length - asked, 1, fork);  // makes the plans of one row
  }
  const gallery::ProcessorStopwatch watch;
  for (std::int64_t from = length - asked; from < length; ++from) {
    const nn::Var row = read(context, exercise, from, 1, cache);
    decoded.answers.push_back(
        autograd::argmax_rows(answer_(context, reshape(row, {1, kDim})).value()).front());
  }
  decoded.seconds_a_question = watch.seconds() / static_cast<double>(asked);
  decoded.bytes = cache.bytes();
  return decoded;
}

Tensor Reader::weights(const Exercise& exercise, std::size_t layer) {
  nn::Context context;
  Tensor weights;
  questions(context, {&exercise, 1}, &weights, layer);
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
