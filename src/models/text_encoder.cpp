#include "fovea/models/text_encoder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "fovea/core/error.h"
#include "models/batch_checks.h"

namespace fovea::models {

TextEncoder::TextEncoder(const TextEncoderSpec& spec, nn::ParameterSet::Source source)
    : spec_(spec),
      parameters_(std::make_unique<nn::ParameterSet>(std::move(source))),
      embedding_(*parameters_, spec.embedding_name, spec.vocabulary, spec.stack.input_elements()) {
  const auto* learned = std::get_if<nn::LearnedPositions>(&spec.stack.positions);
  if (spec.pad_id && learned && learned->first_row < 1)
    throw InvalidArgument("TextEncoder", "spec.stack.positions",
                          "a first_row of at least 1, since pad_id has the row before it",
                          std::to_string(learned->first_row));
  if (spec.token_types > 0)
    types_ = nn::Embedding(*parameters_, "embed_types", spec.token_types, spec.stack.input_elements());
  if (spec.task_types > 0)
    tasks_ = nn::Embedding(*parameters_, "embed_tasks", spec.task_types, spec.stack.input_elements());
  stack_ = nn::TransformerStack(*parameters_, spec.stack_name, spec.stack);
  if (spec.decoder) decoder_ = nn::TransformerStack(*parameters_, "model.decoder", spec.decoder->stack);
  if (!spec.head) return;
  std::int64_t dim = spec.stack.dim;
  if (const std::optional<HeadSpec::Dense>& dense = spec.head->dense) {
    const std::int64_t rows = std::exchange(dim, dense->outputs.value_or(dim));
    dense_ = nn::Linear(*parameters_, "head.dense", rows, dim, dense->bias);
    if (dense->norm) norm_.emplace(*parameters_, "head.norm", dim, *dense->norm);
  }
  if (spec.head->output == HeadSpec::Output::tied && dim != spec.stack.input_elements())
    throw InvalidArgument(
        "TextEncoder", "spec.head.output",
        "rows of " + std::to_string(spec.stack.input_elements()) + " elements, as the embeddings' table has",
        std::to_string(dim));
  output_ = spec.head->output == HeadSpec::Output::tied
                ? embedding_.table
                : &parameters_->xavier("head.output.weight", {spec.head->outputs, dim});
  output_->multiplies_rows = true;
  if (spec.head->bias == nn::Linear::Bias::with)
    output_bias_ = &parameters_->constant("head.output.bias", {spec.head->outputs}, 0.0f);
}

namespace {

// Rows of a packed batch whose positions follow each other: where they start, and the first position.
struct Runs {
  std::vector<std::int64_t> starts{0}, first;

  void add(std::int64_t rows, std::int64_t position) {
    if (rows == 0) return;
    starts.push_back(starts.back() + rows);
    first.push_back(position);
  }
};

// transformers' create_position_ids_from_input_ids: padding has the row before the first position's, and what
// follows it counts on as if it were not there. Returns how many ids are counted.
std::int64_t add_runs(std::span<const std::int32_t> ids, std::optional<std::int64_t> pad_id, Runs& runs) {
  std::int64_t position = 0, rows = 0;
  for (const std::int32_t id : ids) {
    if (!pad_id || id != *pad_id) {
      ++rows;
      continue;
    }
    runs.add(rows, position);
    runs.add(1, -1);
    position += std::exchange(rows, 0);
  }
  runs.add(rows, position);
  return position + rows;
}

}  // namespace

nn::Var TextEncoder::hidden(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
                            std::span<const std::int32_t> types,
                            const std::function<Tensor*(std::string_view, std::size_t)>& weights) const {
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("TextEncoder::hidden", argument, std::move(expected), std::move(got));
  };
  if (sequences.empty()) refuse("sequences", "at least one", "none");
  if (weights && sequences.size() > 1)
    refuse("sequences", "one alone, whose weights are given", std::to_string(sequences.size()));
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> starts{0};
  Runs runs;
  for (const std::vector<std::int32_t>& sequence : sequences) {
    if (sequence.empty()) refuse("sequences", "at least one id in each", "none");
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    starts.push_back(std::ssize(ids));
    const std::int64_t counted = add_runs(sequence, spec_.pad_id, runs);
    const auto* learned = std::get_if<nn::LearnedPositions>(&spec_.stack.positions);
    if (learned && counted > learned->count)
      refuse("sequences", "at most " + std::to_string(learned->count) + " ids in each, the model's positions",
             std::to_string(counted));
  }
  if (!types.empty() && types.size() != ids.size())
    refuse("types", "one for each of " + std::to_string(ids.size()) + " ids", std::to_string(types.size()));
  nn::Var rows = embedding_(context, ids, spec_.embedding_factor);
  if (types_.table) {
    const std::vector<std::int32_t> zeros(types.empty() ? ids.size() : 0);
    rows = add(rows, types_(context, types.empty() ? zeros : types));
  } else if (!types.empty()) {
    refuse("types", "none: the model has no table of them", std::to_string(types.size()));
  }
  if (tasks_.table) rows = add(rows, tasks_(context, std::vector<std::int32_t>(ids.size())));
  rows = stack_.enter(context, reshape(rows, {1, std::ssize(ids), spec_.stack.input_elements()}), runs.starts,
                      runs.first);
  rows = weights ? stack_(context, rows, {.mask = spec_.mask, .weights = weights})
                 : stack_(context, rows, {.mask = spec_.mask, .starts = starts});
  return spec_.decoder ? decode(context, sequences, starts, rows) : rows;
}

nn::Var TextEncoder::decode(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
                            std::span<const std::int64_t> starts, const nn::Var& encoded) const {
  const TextDecoderSpec& spec = *spec_.decoder;
  std::vector<std::int32_t> moved;
  for (const std::vector<std::int32_t>& ids : sequences) {
    std::size_t last = ids.size() - 1;
    while (last > 0 && spec.pad_id && ids[last] == *spec.pad_id) --last;
    moved.push_back(spec.start_id ? static_cast<std::int32_t>(*spec.start_id) : ids[last]);
    moved.insert(moved.end(), ids.begin(), ids.end() - 1);
  }
  const std::vector<std::int64_t> first(sequences.size(), 0);
  const nn::Var rows = embedding_(context, moved, spec_.embedding_factor);
  const nn::Var x = decoder_.enter(
      context, reshape(rows, {1, std::ssize(moved), spec.stack.input_elements()}), starts, first);
  return decoder_(context, x,
                  {.mask = Causal{}, .memory = encoded, .starts = starts, .memory_starts = starts});
}

// How many rows of a sequence there are up to the one that a head reads.
std::int64_t TextEncoder::rows_read(std::span<const std::int32_t> ids) const {
  std::int64_t read = std::ssize(ids);
  if (spec_.head->pooling != SentencePooling::Kind::last) return read;
  if (const auto& id = spec_.head->row_of_id) {
    while (read > 0 && ids[static_cast<std::size_t>(read) - 1] != *id) --read;
    if (read == 0)
      throw InvalidArgument("TextEncoder::head_rows", "sequences",
                            "the id " + std::to_string(*id) + " in each, whose row the head reads", "none");
  } else if (const auto& pad = spec_.head->pad_id) {
    while (read > 1 && ids[static_cast<std::size_t>(read) - 1] == *pad) --read;
  }
  return read;
}

void TextEncoder::check_head() const {
  if (!output_) throw InvalidArgument("TextEncoder::logits", "model", "one with a head", "one without");
}

Tensor TextEncoder::head_rows(const nn::Var& hidden,
                              std::span<const std::vector<std::int32_t>> sequences) const {
  check_head();
  check_rows("TextEncoder::head_rows", "hidden", hidden, spec_.stack.dim);
  const std::int64_t dim = spec_.stack.dim, count = hidden.value().count() / dim;
  std::int64_t ids_of_all = 0;
  for (const std::vector<std::int32_t>& ids : sequences) {
    if (ids.empty())
      throw InvalidArgument("TextEncoder::head_rows", "sequences", "at least one id in each", "none");
    ids_of_all += std::ssize(ids);
  }
  if (ids_of_all != count)
    throw InvalidArgument("TextEncoder::head_rows", "sequences",
                          std::to_string(count) + " ids, one for each row of hidden",
                          std::to_string(ids_of_all));
  Tensor rows = hidden.value().reshape({count, dim});
  if (!spec_.head->pooling) return rows;
  if (spec_.head->pools_late) {
    nn::Context inference;
    rows = dense_rows(inference, rows).value();
  }
  std::vector<RowRange> read;
  for (std::int64_t begin = 0; const std::vector<std::int32_t>& ids : sequences) {
    read.push_back({begin, rows_read(ids)});
    begin += std::ssize(ids);
  }
  return SentencePooling{*spec_.head->pooling}.apply(rows, read);
}

nn::Var TextEncoder::dense_rows(nn::Context& context, const nn::Var& rows) const {
  nn::Var x = rows;
  if (spec_.head->dense) x = activate(spec_.head->dense->activation, dense_(context, x));
  if (norm_) x = (*norm_)(context, x);
  return x;
}

Tensor TextEncoder::logits(const nn::Var& rows) const {
  check_head();
  check_rows("TextEncoder::logits", "rows", rows, spec_.stack.dim);
  nn::Context inference;
  nn::Var x = rows.value().reshape({rows.value().count() / spec_.stack.dim, spec_.stack.dim});
  if (!spec_.head->pools_late) x = dense_rows(inference, x);
  return autograd::linear(x, inference.use(*output_), output_bias_ ? inference.use(*output_bias_) : nn::Var())
      .value();
}

Tensor TextEncoder::logits(std::span<const std::vector<std::int32_t>> sequences,
                           std::span<const std::int32_t> types) const {
  nn::Context inference;
  return logits(head_rows(hidden(inference, sequences, types), sequences));
}

}  // namespace fovea::models
