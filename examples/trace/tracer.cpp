#include "tracer.h"

#include <algorithm>
#include <cmath>

#include "fovea/attention/masks.h"

namespace trace_example {

using namespace fovea;
using nn::Var;

Batch batch_of(std::span<const Program> programs, const text::Vocabulary& vocabulary, PhiloxStream& random) {
  Batch batch;
  batch.size = static_cast<std::int64_t>(programs.size());
  batch.lines = static_cast<std::int64_t>(programs[0].lines.size());
  batch.words.size = batch.size * batch.lines;
  batch.words.length = kLineWords;
  std::vector<std::vector<std::int32_t>> messages;
  for (const Program& program : programs) {
    const Encoded encoded = encode(program, vocabulary, random);
    batch.words.ids.insert(batch.words.ids.end(), encoded.lines.begin(), encoded.lines.end());
    for (const Line& line : program.lines)
      batch.words.lengths.push_back(static_cast<std::int64_t>(line.words.size()));
    messages.push_back(encoded.message);
    batch.wrote.push_back(program.wrote);
  }
  for (auto& message : messages) message.resize(kLineWords, text::kPadId);
  batch.messages = models::pad(messages);
  return batch;
}

namespace {

constexpr std::int64_t dim = 64, pointer_dim = 2 * dim;

// All words of a line have its number as their position.
Tensor line_numbers(std::int64_t lines) {
  const Tensor numbers = nn::sinusoidal_positions(0, lines, dim);
  Tensor words(DType::f32, {lines * kLineWords, dim});
  for (std::int64_t i = 0; i < lines * kLineWords; ++i)
    std::copy_n(numbers.data<float>() + i / kLineWords * dim, dim, words.data<float>() + i * dim);
  return words;
}

// What is made of a line, of its first `dim` numbers, starts nearly as the sum of its words, so that equal
// words have an effect on it from the first update on.
void start_as_sum(const nn::Linear& line) {
  float* weight = line.weight->value.data<float>();
  constexpr std::int64_t width = kLineWords * dim;
  for (std::int64_t i = 0; i < dim * width; ++i) weight[i] += i / width == i % width % dim ? 0.4f : 0.0f;
}

// A word sees the lines above its own.
Mask lines_above(std::int64_t lines) {
  return Predicate("above", {.query_end = lines * kLineWords, .key_len = lines},
                   [](const Site& at) { return at.key < at.query / kLineWords; });
}

}  // namespace

Tracer::Tracer(nn::ParameterSet& set, std::int64_t vocabulary, Reads reads)
    : reads_(reads),
      words_(set, "words", vocabulary, dim),
      line_(set, "line", kLineWords * dim, dim),
      norm_(set, "norm", dim),
      above_(set, "above", dim, 4, 0.0f),
      resolved_norm_(set, "resolved_norm", dim),
      hidden_(set, "hidden", dim, 2 * dim),
      read_(set, "message",
            {.layers = 1,
             .dim = dim,
             .feed_forward = 128,
             .reads = reads != Reads::no_message ? nn::StackOptions::Reads::memory
                                                 : nn::StackOptions::Reads::itself}),
      query_(set, "pointer.q_proj", kLineWords * dim, pointer_dim),
      key_(set, "pointer.k_proj", kLineWords * dim, pointer_dim) {
  nn::start_alike(set);
  nn::start_passing(set);
  start_as_sum(line_);
  start_as_sum(query_);
  start_as_sum(key_);
}

Var Tracer::operator()(nn::Context& context, const Batch& batch, Tensor* weights) const {
  const std::int64_t size = batch.size, lines = batch.lines, count = lines * kLineWords;
  const auto embed = [&](const models::Padded& padded) {
    const Var words = words_(context, padded.ids, std::sqrt(static_cast<float>(dim)));
    return nn::add_positions(reshape(words, {padded.size, padded.length, dim}),
                             nn::sinusoidal_positions(0, padded.length, dim));
  };
  const Var words =
      norm_(context, nn::add_positions(reshape(embed(batch.words), {size, count, dim}), line_numbers(lines)));
  const Var line = line_(context, reshape(words, {size, lines, kLineWords * dim}));
  Var resolved = words;
  if (reads_ != Reads::no_lines_above)
    resolved = add(words, above_(context, words, line, {.mask = lines_above(lines)}));
  resolved = resolved_norm_(context, add(resolved, hidden_(context, resolved)));

  Var message = embed(batch.messages);
  if (reads_ != Reads::no_message) {
    resolved = read_(context, resolved,
                     {.mask = Chunked{kLineWords},
                      .memory = message,
                      .weights = [&](std::string_view place, std::size_t layer) {
                        return place == "memory" && layer + 1 == read_.size() ? weights : nullptr;
                      }});
  } else {
    message = read_(context, message, {});
  }
  const Var asked = reshape(message, {size, 1, kLineWords * dim});
  const Var pointed = attention_weights({}, query_(context, asked),
                                        key_(context, reshape(resolved, {size, lines, kLineWords * dim})));
  return reshape(pointed, {size, lines});
}

}  // namespace trace_example
