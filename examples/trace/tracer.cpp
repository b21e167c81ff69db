#include "tracer.h"

#include <algorithm>
#include <cmath>

#include "fovea/attention/masks.h"

namespace trace_example {

using namespace fovea;
using nn::Var;

Batch batch_of(std::span<const Program> programs, const text::Vocabulary& vocabulary, Given given,
               PhiloxStream& random) {
  Batch batch;
  batch.size = static_cast<std::int64_t>(programs.size());
  std::vector<std::vector<std::int32_t>> reports;
  for (const Program& program : programs) {
    Encoded encoded = encode(program, vocabulary, random);
    if (given == Given::no_log) std::fill(encoded.log.begin() + 1, encoded.log.end(), text::kPadId);
    if (given == Given::no_user) std::fill(encoded.said.begin() + 1, encoded.said.end(), text::kPadId);
    batch.lines.insert(batch.lines.end(), encoded.lines.begin(), encoded.lines.end());
    for (const Line& line : program.lines) batch.parents.push_back(line.parent);
    encoded.log.insert(encoded.log.end(), encoded.said.begin(), encoded.said.end());
    reports.push_back(std::move(encoded.log));
    batch.failed.push_back(program.failed);
  }
  batch.report = models::pad(reports);
  return batch;
}

namespace {

constexpr std::int64_t dim = 64, pointer_dim = 2 * dim;

// The projection of a line starts nearly as the sum of its parts (their first `dim` numbers), so that equal
// words have an effect on it from the first update on.
void start_as_sum(const nn::Linear& line, std::int64_t parts) {
  float* weight = line.weight->value.data<float>();
  const std::int64_t width = parts * dim;
  for (std::int64_t i = 0; i < dim * width; ++i) weight[i] += i / width == i % width % dim ? 0.4f : 0.0f;
}

// The syntax tree as a mask: a line sees the head of the function around it, and an outermost head sees
// itself.
Mask parent_in_tree(const Batch& batch) {
  return Predicate("parent", {.batch = batch.size, .query_end = kLines, .key_len = kLines},
                   [&](const Site& at) {
                     const int parent = batch.parents[static_cast<std::size_t>(at.batch * kLines + at.query)];
                     return at.key == (parent < 0 ? at.query : parent);
                   });
}

}  // namespace

Tracer::Tracer(nn::ParameterSet& set, std::int64_t vocabulary, Given given)
    : given_(given),
      words_(set, "words", vocabulary, dim),
      norm_(set, "norm", dim),
      line_(set, "line", kLineWords * dim, dim),
      around_(set, "around", dim, {.num_query_heads = 4}),
      read_(set, "read",
            nn::stack_of({.layers = 1,
                          .dim = dim,
                          .feed_forward = 128,
                          .cross_attention = nn::TransformerOptions::CrossAttention::with})),
      query_(set, "pointer.query", dim, pointer_dim),
      key_(set, "pointer.key", kParts * dim, pointer_dim) {
  nn::start_keys_as_queries(set);
  nn::start_values_as_identity(set);
  start_as_sum(line_, kLineWords);
  start_as_sum(query_, 1);
  start_as_sum(key_, kParts);
}

Var Tracer::operator()(nn::Context& context, const Batch& batch, Tensor* weights) const {
  const std::int64_t size = batch.size, places = 2 * kReportWords;
  const float factor = std::sqrt(static_cast<float>(dim));
  const Var report =
      nn::add_positions(reshape(words_(context, batch.report.ids, factor), {size, places, dim}),
                        nn::sinusoidal_positions(0, places, dim));

  // A line is the concatenation of its words. Words have a position in the line, and the line has a
  // position in the text.
  const Var words =
      norm_(context,
            nn::add_positions(reshape(words_(context, batch.lines, factor), {size * kLines, kLineWords, dim}),
                              nn::sinusoidal_positions(0, kLineWords, dim)));
  const Var line = nn::add_positions(
      reshape(line_(context, reshape(words, {size, kLines, kLineWords * dim})), {size, kLines, dim}),
      nn::sinusoidal_positions(0, kLines, dim));
  // Without the tree a line can look at every line before it in the text, and at itself.
  const Var around = around_(context, line, line,
                             {.mask = given_ == Given::no_tree ? Mask(Causal{}) : parent_in_tree(batch)});

  const std::vector<Var> beside{reshape(words, {size * kLines, kLineWords, dim}),
                                reshape(around, {size * kLines, 1, dim})};
  const Var parts =
      read_(context, reshape(concat(beside, 1), {size, kLines * kParts, dim}),
            {.mask = Chunked{kParts}, .memory = report, .weights = [&](std::string_view place, std::size_t) {
               return place == "memory" ? weights : nullptr;
             }});

  const Var asked = reshape(pool(autograd::Pool::mean, report, {}), {size, 1, dim});
  const Var pointed = attention_weights({}, query_(context, asked),
                                        key_(context, reshape(parts, {size, kLines, kParts * dim})));
  return reshape(pointed, {size, kLines});
}

}  // namespace trace_example
