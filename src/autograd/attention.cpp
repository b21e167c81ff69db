// Attention as an op: the engine's forward and backward on strided views of [B, L, heads * dim].
#include <algorithm>
#include <iterator>
#include <memory>

#include "autograd/heads.h"
#include "autograd/record.h"
#include "fovea/attention/score_definition.h"
#include "fovea/autograd/ops.h"
#include "fovea/autograd/plan_cache.h"
#include "fovea/plan/plan.h"

namespace fovea::autograd {
namespace {

void check(const char* argument, const Var& x, std::int64_t heads, std::int64_t batch) {
  if (x.shape().rank() != 3 || heads < 1 || x.size(2) % heads != 0 || x.size(0) != batch) {
    throw InvalidArgument(
        "attention", argument,
        "[" + std::to_string(batch) + ", length, a multiple of " + std::to_string(heads) + " heads]",
        to_string(x.shape()));
  }
}

// Copies of the lists of a call, which belong to the caller.
struct Lists {
  std::vector<std::int64_t> key_lengths, query_offsets, query_starts, key_starts;
  explicit Lists(const AttentionCall& call)
      : key_lengths(call.key_lengths.begin(), call.key_lengths.end()),
        query_offsets(call.query_offsets.begin(), call.query_offsets.end()),
        query_starts(call.query_starts.begin(), call.query_starts.end()),
        key_starts(call.key_starts.begin(), call.key_starts.end()) {}
};

struct Saved {
  AttentionPlan plan;
  Lists lists;
  Tensor output, log_sum_exp;
};

Arguments given(const AttentionCall& call) {
  Arguments arguments;
  for (const AttentionArgument& argument : call.arguments) {
    if (argument.value.empty()) continue;
    // `set` would replace the first one, whose gradient nobody would then write.
    if (!arguments[argument.name].empty())
      throw InvalidArgument("attention", "call.arguments", "each argument once",
                            "'" + argument.name + "' twice");
    arguments.set(argument.name, argument.value.value());
  }
  return arguments;
}

// `key` is empty where the score reads no keys, `value` where the weights are the result.
AttentionInputs inputs_of(const AttentionCall& call, const Saved& saved, const Var& query, const Var& key,
                          const Var& value) {
  const auto kv_heads = [&call](const Var& x) {
    return x.empty() ? ConstTensorView() : ConstTensorView(heads_of(x.value(), call.num_kv_heads));
  };
  return {.query = heads_of(query.value(), call.num_query_heads),
          .key = kv_heads(key),
          .value = kv_heads(value),
          .arguments = given(call),
          .key_lengths = saved.lists.key_lengths,
          .query_offset = call.query_offset,
          .query_offsets = saved.lists.query_offsets,
          .query_starts = saved.lists.query_starts,
          .key_starts = saved.lists.key_starts,
          .cache = call.cache,
          .dropout_seed = call.dropout_seed,
          .sample_seed = call.sample_seed};
}

// A gradient tensor in the shape of `x`, if x is recorded.
Tensor like(const Var& x) {
  return x.recorded() ? Tensor(x.value().dtype(), x.shape()) : Tensor();
}

// `gradient`: of the output, or of the weights where there is no value.
void backward(const AttentionCall& call, const Saved& saved, const Var& query, const Var& key,
              const Var& value, const Tensor& gradient) {
  const Tensor dq = like(query), dk = like(key), dv = like(value);
  std::vector<Tensor> d_arguments;
  AttentionGradients gradients;
  if (dq) gradients.query = heads_of(dq, call.num_query_heads);
  if (dk) gradients.key = heads_of(dk, call.num_kv_heads);
  if (dv) gradients.value = heads_of(dv, call.num_kv_heads);
  for (const AttentionArgument& argument : call.arguments) {
    d_arguments.push_back(like(argument.value));
    if (d_arguments.back()) gradients.arguments.set(argument.name, d_arguments.back());
  }
  const AttentionInputs inputs = inputs_of(call, saved, query, key, value);
  AttentionLoss loss{};
  if (value.empty()) {
    loss.d_weights = gradient;
  } else {
    loss.output = heads_of(saved.output, call.num_query_heads);
    loss.log_sum_exp = saved.log_sum_exp;
    loss.d_output = heads_of(gradient, call.num_query_heads);
  }
  if (call.advantage) loss.advantage = call.advantage;
  attend_backward(saved.plan, inputs, loss, gradients);
  accumulate(query, dq);
  accumulate(key, dk);
  accumulate(value, dv);
  for (std::size_t n = 0; n < d_arguments.size(); ++n) accumulate(call.arguments[n].value, d_arguments[n]);
}

bool is_packed(const AttentionCall& call) {
  return !call.query_starts.empty() || !call.key_starts.empty();
}

const ScoreDefinition& score_of(const AttentionCall& call) {
  return definition(call.plan ? call.plan->spec().score : call.spec.score);
}

std::int64_t longest_view(std::span<const KeyValueView> cache) {
  std::int64_t longest = 0;
  for (const KeyValueView& view : cache) longest = std::max(longest, view.length);
  return longest;
}

// The number of keys. Where there are none, it is that of the values, or of the rows that replace the keys.
std::int64_t key_rows(const AttentionCall& call, const Var& key, const Var& value) {
  if (!call.cache.empty()) return longest_view(call.cache);
  if (is_packed(call)) return longest_entry(call.key_starts);
  if (!key.empty()) return key.size(1);
  if (!value.empty()) return value.size(1);
  const ScoreDefinition& score = score_of(call);
  const std::string& name = score.arguments[static_cast<std::size_t>(score.key_rows)].name;
  const ConstTensorView rows = given(call)["score." + name];
  return rows.rank() > 0 ? rows.size(0) : 0;
}

// The shape of a plan for this call. For a packed batch it has the number of entries, and the rows of the
// longest.
AttentionShape shape_of(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  const std::int64_t batch = query.shape().rank() == 3 ? query.size(0) : 0;
  check("query", query, call.num_query_heads, batch);
  const bool keyless = score_of(call).key_rows >= 0;
  const bool cached = !call.cache.empty();
  if (key.empty() && !keyless && !cached)
    throw InvalidArgument("attention", "key", "keys, which this score reads", "none");
  if (!key.empty()) check("key", key, call.num_kv_heads, batch);
  if (!value.empty()) check("value", value, call.num_kv_heads, batch);
  const bool packed = is_packed(call);
  const std::int64_t values = cached          ? call.cache.front().value_dim
                              : value.empty() ? AttentionShape::no_values
                                              : value.size(2) / call.num_kv_heads;
  return {.batch = packed ? std::max<std::int64_t>(std::ssize(call.query_starts) - 1, 1) : batch,
          .num_query_heads = call.num_query_heads,
          .num_kv_heads = call.num_kv_heads,
          .query_len = packed ? longest_entry(call.query_starts) : query.size(1),
          .key_len = key_rows(call, key, value),
          .head_dim = query.size(2) / call.num_query_heads,
          .value_dim = values,
          .key_dim = cached        ? call.cache.front().head_dim
                     : key.empty() ? 0
                                   : key.size(2) / call.num_kv_heads,
          .hidden = hidden_of(call.plan ? call.plan->spec().score : call.spec.score, given(call))};
}

Tape* tape_of(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  Tape* tape = autograd::tape_of({&query, &key, &value});
  for (const AttentionArgument& argument : call.arguments) {
    if (!tape) tape = autograd::tape_of({&argument.value});
  }
  return tape;
}

AttentionPlan plan_of(const AttentionCall& call, const AttentionShape& shape) {
  if (call.plan) return *call.plan;
  return call.plans ? call.plans->of(call.spec, shape) : make_plan(call.spec, shape);
}

std::shared_ptr<Saved> save(const AttentionCall& call, const AttentionShape& shape) {
  return std::make_shared<Saved>(Saved{plan_of(call, shape), Lists(call), Tensor(), Tensor()});
}

// The part of a call that backward keeps. The caller's memory may be gone by then, so `saved` holds copies of
// the lists.
AttentionCall kept(AttentionCall call) {
  call.weights = nullptr;
  call.plans = nullptr;
  call.key_lengths = call.query_offsets = call.query_starts = call.key_starts = {};
  return call;
}

}  // namespace

Var attention(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  const AttentionShape shape = shape_of(call, query, key, value);
  const std::int64_t batch = query.size(0), rows = query.size(1);
  Tape* tape = tape_of(call, query, key, value);
  if (tape && !call.cache.empty())
    throw InvalidArgument("attention", "call.cache",
                          "operands that are not recorded: a cache has no gradients", "a recorded one");
  const auto saved = save(call, shape);
  saved->output = Tensor(DType::f32, {batch, rows, call.num_query_heads * shape.value_dim});
  AttentionOutputs outputs{.output = heads_of(saved->output, call.num_query_heads)};
  if (tape) {
    saved->log_sum_exp = Tensor(DType::f32, {batch, call.num_query_heads, rows});
    outputs.log_sum_exp = saved->log_sum_exp;
  }
  if (call.weights) {
    *call.weights = Tensor(DType::f32, {batch, call.num_query_heads, rows, shape.key_len});
    outputs.weights = *call.weights;
  }
  attend(saved->plan, inputs_of(call, *saved, query, key, value), outputs);
  if (!tape) return saved->output;
  return {saved->output, tape->record([=, call = kept(call)](const Tensor& d_output) {
            backward(call, *saved, query, key, value, d_output);
          })};
}

Var attention_weights(const AttentionCall& call, const Var& query, const Var& key) {
  const AttentionSpec& spec = call.plan ? call.plan->spec() : call.spec;
  if (spec.dropout.rate > 0.0) {
    throw InvalidArgument("attention_weights", "call.spec.dropout", "none: weights are taken before dropout",
                          std::to_string(spec.dropout.rate));
  }
  const AttentionShape shape = shape_of(call, query, key, {});
  Tape* tape = tape_of(call, query, key, {});
  const auto saved = save(call, shape);
  const Tensor weights(DType::f32, {query.size(0), shape.num_query_heads, query.size(1), shape.key_len});
  AttentionOutputs outputs{};
  outputs.weights = weights;
  attend(saved->plan, inputs_of(call, *saved, query, key, {}), outputs);
  if (call.weights) *call.weights = weights;
  return result_of(tape, weights, [=, call = kept(call)](const Tensor& d_weights) {
    backward(call, *saved, query, key, {}, d_weights);
  });
}

}  // namespace fovea::autograd
