#include "fovea/plan/call_shape.h"

#include <algorithm>
#include <iterator>

#include "fovea/attention/score_definition.h"
#include "plan/checks.h"

namespace fovea {
namespace {

void expect_four_axes(const char* function, const char* argument, const ConstTensorView& view) {
  if (view.rank() != 4)
    throw InvalidArgument(function, argument, "[batch, heads, length, dim]", described(view));
}

void check_axes(const ScoreDefinition& score, const AttentionInputs& inputs, const char* function) {
  expect_four_axes(function, "query", inputs.query);
  if (is_given(inputs.value)) {
    expect_four_axes(function, "value", inputs.value);
    // 0 would stand for a call without values.
    if (inputs.value.size(3) == 0)
      throw InvalidArgument(function, "value", "values of at least one element", described(inputs.value));
  }
  if (is_given(inputs.key)) return expect_four_axes(function, "key", inputs.key);
  if (score.key_rows < 0 && inputs.cache.empty())
    throw InvalidArgument(function, "key", "keys, which this score reads", "none");
}

// The number of keys of a call without a cache, which is not packed.
std::int64_t key_rows(const ScoreDefinition& score, const AttentionInputs& inputs) {
  if (is_given(inputs.key)) return inputs.key.size(2);
  if (is_given(inputs.value)) return inputs.value.size(2);
  const std::string& name = score.arguments[static_cast<std::size_t>(score.key_rows)].name;
  const ConstTensorView rows = inputs.arguments["score." + name];
  return rows.rank() > 0 ? rows.size(0) : 0;
}

void read_cache(std::span<const KeyValueView> cache, AttentionShape& shape) {
  shape.num_kv_heads = cache.front().num_kv_heads;
  shape.key_dim = cache.front().head_dim;
  shape.value_dim = cache.front().value_dim;
  for (const KeyValueView& view : cache) shape.key_len = std::max(shape.key_len, view.length);
}

void read_keys_and_values(const ScoreDefinition& score, const AttentionInputs& inputs,
                          AttentionShape& shape) {
  const bool keys = is_given(inputs.key), values = is_given(inputs.value);
  shape.num_kv_heads = keys ? inputs.key.size(1) : values ? inputs.value.size(1) : shape.num_query_heads;
  shape.key_len = key_rows(score, inputs);
  shape.key_dim = keys ? inputs.key.size(3) : 0;
  shape.value_dim = values ? inputs.value.size(3) : AttentionShape::no_values;
}

}  // namespace

AttentionShape shape_of(const AttentionSpec& spec, const AttentionInputs& inputs, const char* function) {
  const ScoreDefinition& score = definition(spec.score);
  check_axes(score, inputs, function);
  AttentionShape shape{.batch = inputs.query.size(0),
                       .num_query_heads = inputs.query.size(1),
                       .query_len = inputs.query.size(2),
                       .head_dim = inputs.query.size(3),
                       .hidden = hidden_of(spec.score, inputs.arguments)};
  if (inputs.cache.empty()) {
    read_keys_and_values(score, inputs, shape);
  } else {
    read_cache(inputs.cache, shape);
  }
  if (!inputs.query_starts.empty() || !inputs.key_starts.empty()) {
    shape.batch = std::max<std::int64_t>(std::ssize(inputs.query_starts) - 1, 1);
    shape.query_len = longest_entry(inputs.query_starts);
    if (inputs.cache.empty()) shape.key_len = longest_entry(inputs.key_starts);
  }
  return shape;
}

}  // namespace fovea
