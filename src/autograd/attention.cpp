// Attention as an op: the engine's forward and backward on strided views of [B, L, heads * dim].
#include <memory>

#include "fovea/autograd/ops.h"
#include "fovea/plan/plan.h"

namespace fovea::autograd {
namespace {

// [B, L, heads * dim] seen as [B, heads, L, dim].
TensorView heads_of(const Tensor& tensor, std::int64_t heads) {
  const std::int64_t batch = tensor.size(0), length = tensor.size(1), width = tensor.size(2),
                     dim = width / heads;
  const std::int64_t strides[] = {length * width, dim, width, 1};
  return {tensor.raw(), tensor.dtype(), Shape{batch, heads, length, dim}, strides};
}

void check(const char* argument, const Var& x, std::int64_t heads, std::int64_t batch) {
  if (x.shape().rank() != 3 || heads < 1 || x.size(2) % heads != 0 || x.size(0) != batch) {
    throw InvalidArgument(
        "attention", argument,
        "[" + std::to_string(batch) + ", length, a multiple of " + std::to_string(heads) + " heads]",
        to_string(x.shape()));
  }
}

struct Saved {
  AttentionPlan plan;
  Tensor output, log_sum_exp;
  std::vector<std::int64_t> key_lengths;
};

AttentionInputs inputs_of(const AttentionCall& call, const Saved& saved, const Var& query, const Var& key,
                          const Var& value) {
  AttentionInputs inputs{.query = heads_of(query.value(), call.num_query_heads),
                         .key = heads_of(key.value(), call.num_kv_heads),
                         .value = heads_of(value.value(), call.num_kv_heads),
                         .key_lengths = saved.key_lengths,
                         .query_offset = call.query_offset,
                         .dropout_seed = call.dropout_seed};
  if (!call.W.empty()) inputs.parameters.W = call.W.value();
  if (!call.U.empty()) inputs.parameters.U = call.U.value();
  if (!call.v.empty()) inputs.parameters.v = call.v.value();
  if (!call.b.empty()) inputs.parameters.b = call.b.value();
  return inputs;
}

// A gradient tensor like `x` where somebody wants it.
Tensor like(const Var& x) {
  return x.recorded() ? Tensor(x.value().dtype(), x.shape()) : Tensor();
}

void backward(const AttentionCall& call, const Saved& saved, const Var& query, const Var& key,
              const Var& value, const Tensor& d_output) {
  const Tensor dq = like(query), dk = like(key), dv = like(value);
  const Tensor dW = like(call.W), dU = like(call.U), d_v = like(call.v), db = like(call.b);
  AttentionGradients gradients;
  if (dq) gradients.query = heads_of(dq, call.num_query_heads);
  if (dk) gradients.key = heads_of(dk, call.num_kv_heads);
  if (dv) gradients.value = heads_of(dv, call.num_kv_heads);
  if (dW) gradients.W = dW;
  if (dU) gradients.U = dU;
  if (d_v) gradients.v = d_v;
  if (db) gradients.b = db;
  attend_backward(saved.plan, inputs_of(call, saved, query, key, value),
                  heads_of(saved.output, call.num_query_heads), saved.log_sum_exp,
                  heads_of(d_output, call.num_query_heads), gradients);
  accumulate(query, dq);
  accumulate(key, dk);
  accumulate(value, dv);
  accumulate(call.W, dW);
  accumulate(call.U, dU);
  accumulate(call.v, d_v);
  accumulate(call.b, db);
}

}  // namespace

Var attention(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  const std::int64_t batch = query.size(0), rows = query.size(1);
  check("query", query, call.num_query_heads, batch);
  check("key", key, call.num_kv_heads, batch);
  check("value", value, call.num_kv_heads, batch);
  const AttentionShape shape{.batch = batch,
                             .num_query_heads = call.num_query_heads,
                             .num_kv_heads = call.num_kv_heads,
                             .query_len = rows,
                             .key_len = key.size(1),
                             .head_dim = query.size(2) / call.num_query_heads,
                             .value_dim = value.size(2) / call.num_kv_heads,
                             .key_dim = key.size(2) / call.num_kv_heads,
                             .hidden = call.v.empty() ? 0 : call.v.value().size(-1)};
  Tape* tape = nullptr;
  for (const Var* input : {&query, &key, &value, &call.W, &call.U, &call.v, &call.b}) {
    if (input->recorded()) tape = input->node()->tape;
  }
  const auto saved = std::make_shared<Saved>(Saved{make_plan(call.spec, shape), Tensor(), Tensor(), {}});
  saved->key_lengths.assign(call.key_lengths.begin(), call.key_lengths.end());
  saved->output = Tensor(DType::f32, {batch, rows, call.num_query_heads * shape.value_dim});
  AttentionOutputs outputs{.output = heads_of(saved->output, call.num_query_heads)};
  if (tape) {
    saved->log_sum_exp = Tensor(DType::f32, {batch, call.num_query_heads, rows});
    outputs.log_sum_exp = saved->log_sum_exp;
  }
  if (call.weights) {
    *call.weights = Tensor(DType::f32, {batch, call.num_query_heads, rows, key.size(1)});
    outputs.weights = *call.weights;
  }
  attend(saved->plan, inputs_of(call, *saved, query, key, value), outputs);
  if (!tape) return saved->output;
  AttentionCall kept = call;
  kept.weights = nullptr;  // the caller's, gone by the time of backward
  kept.key_lengths = {};   // saved holds them
  return {saved->output,
          tape->record([=](const Tensor& d_output) { backward(kept, *saved, query, key, value, d_output); })};
}

}  // namespace fovea::autograd
