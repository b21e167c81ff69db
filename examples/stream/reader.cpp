#include "reader.h"

#include "fovea/attention/masks.h"

namespace stream {

using namespace fovea;

namespace {

nn::StackSpec spec_of(const nn::Mixer& mixer, std::int64_t feed_forward) {
  return nn::stack_of(kDim, kLayers, {.mixer = mixer, .mlp = nn::PlainMlp{.inner = feed_forward}});
}

}  // namespace

Reader::Reader(std::uint64_t seed, const nn::Mixer& mixer, std::int64_t feed_forward)
    : parameters_(seed),
      tokens_(parameters_, "tokens", 2 * kNotes, kDim),
      stack_(parameters_, "stack", spec_of(mixer, feed_forward)),
      note_(parameters_, "note", kDim, kNotes) {}

nn::Var Reader::embed(nn::Context& context, std::span<const std::int32_t> tokens, std::int64_t size) const {
  const nn::Var rows = tokens_(context, tokens, 8.0f);  // the square root of kDim
  return stack_.enter(context, reshape(rows, {size, std::ssize(tokens) / size, kDim}));
}

nn::Var Reader::loss(nn::Context& context, std::span<const Stream> streams) {
  std::vector<std::int32_t> tokens, notes;
  for (const Stream& stream : streams) {
    tokens.insert(tokens.end(), stream.tokens.begin(), stream.tokens.end());
    notes.insert(notes.end(), stream.notes.begin(), stream.notes.end());
  }
  const nn::Var rows = stack_(context, embed(context, tokens, std::ssize(streams)), {.mask = Causal{}});
  return autograd::linear_cross_entropy(reshape(rows, {std::ssize(tokens), kDim}), context.use(*note_.weight),
                                        context.use(*note_.bias), notes, 0.0f,
                                        {.scale = 1.0f / static_cast<float>(notes.size())});
}

Tensor Reader::weights(const Stream& stream, std::size_t layer) {
  nn::Context context;
  Tensor weights;
  stack_(context, embed(context, stream.tokens, 1),
         {.mask = Causal{},
          .weights = [&](std::string_view, std::size_t of) { return of == layer ? &weights : nullptr; }});
  return weights;
}

nn::StackCache Reader::start() const {
  nn::Context context;
  return stack_.start(context, {}, {.store = Paged{64}});
}

std::vector<std::int32_t> Reader::read(std::span<const std::int32_t> tokens, nn::StackCache& cache) const {
  nn::Context context;
  const nn::Var rows = stack_.extend(context, embed(context, tokens, 1), cache, {.mask = Causal{}});
  return autograd::argmax_rows(note_(context, reshape(rows, {std::ssize(tokens), kDim})).value());
}

}  // namespace stream
