// Stacks of blocks that read whole sequences at once.
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "fovea/autograd/recompute.h"
#include "fovea/core/kept_vector.h"
#include "nn/both_ways.h"
#include "nn/made.h"
#include "nn/rows_left.h"
#include "nn/transformer_run.h"

namespace fovea::nn {

// What blocks hand to later ones beside their rows.
struct TransformerStack::Whole {
  Whole(Context& context, const Var& x, const Call& call)
      : left(call.lengths), recurrences(context, x, call) {}
  RowsLeft left;
  BothWays recurrences;
};

void TransformerStack::run(Context& context, std::size_t i, Stream& x, const Call& call, Whole& whole) const {
  run(
      context, i, x,
      [&](const Layer& layer, std::size_t, const Var& y) {
        check_mask(layer, call.mask);
        if (layer.recurrent)
          return whole.recurrences(*layer.recurrent, layer.back ? &*layer.back : nullptr, i, y);
        if (layer.blocks)
          return (*layer.blocks)(context, y, {.starts = call.starts, .weights = weights_of(call, "self", i)});
        return (*layer.self)(context, y, y,
                             {.mask = call.mask,
                              .key_lengths = whole.left.lengths(),
                              .query_starts = call.starts,
                              .key_starts = call.starts,
                              .weights = weights_of(call, "self", i),
                              .keys = layer.merging ? whole.left.keys() : nullptr,
                              .key_log_sizes = whole.left.log_sizes(),
                              .arguments = arguments_of(call, "self", i, y),
                              .advantage = advantage_of(call, "self", i)});
      },
      [&](const Layer& layer, std::size_t, const Var& y) {
        return (*layer.memory)(context, y, call.memory,
                               {.mask = call.memory_mask,
                                .key_lengths = call.memory_lengths,
                                .query_starts = call.starts,
                                .key_starts = call.memory_starts,
                                .weights = weights_of(call, "memory", i),
                                .arguments = arguments_of(call, "memory", i, y),
                                .advantage = advantage_of(call, "memory", i)});
      },
      [&](const Layer& layer, const Var& rows) {
        return whole.left.merge(rows, *layer.merging, layer.self->options().num_kv_heads);
      });
}

Var TransformerStack::operator()(Context& context, const Var& x, const Call& call) const {
  check_made("TransformerStack", "spec", made_);
  if (reads_memory() && call.memory.empty())
    throw InvalidArgument("TransformerStack", "memory", "[B, M, dim]", "none");
  const bool memory_given =
      !(call.memory.empty() && call.memory_lengths.empty() && call.memory_starts.empty());
  if (!reads_memory() && memory_given)
    throw InvalidArgument("TransformerStack", "memory", "none, because no block reads one",
                          call.memory.empty() ? "lengths or starts of one" : "a memory");
  if (context.training() && context.activations == Activations::recomputed)
    return leave(context, Stream(run_recomputed(context, x, call), call));
  if (merges_rows()) RowsLeft::check(call);
  Whole whole(context, x, call);
  Stream y(x, call);
  for (std::size_t i = 0; i < layers_.size(); ++i) run(context, i, y, call, whole);
  return whole.left.spread(leave(context, std::move(y)));
}

namespace {

// A call whose numbers live until backward has run.
struct KeptCall {
  explicit KeptCall(const TransformerStack::Call& from) : call(from) {
    call.memory = {};  // an input of each block
    keep(call.lengths, lengths_);
    keep(call.memory_lengths, memory_lengths_);
    keep(call.starts, starts_);
    keep(call.memory_starts, memory_starts_);
  }
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;
  TransformerStack::Call call;

 private:
  static void keep(std::span<const std::int64_t>& numbers, KeptVector<std::int64_t>& own) {
    own.assign(numbers.begin(), numbers.end());
    numbers = own;
  }
  KeptVector<std::int64_t> lengths_, memory_lengths_, starts_, memory_starts_;
};

}  // namespace

Var TransformerStack::run_recomputed(Context& context, Var x, const Call& call) const {
  const auto refuse = [](const char* argument, const char* expected, const char* got) {
    throw InvalidArgument("TransformerStack", argument, expected, got);
  };
  if (merges_rows()) refuse("context.activations", "kept, because a block merges rows", "recomputed");
  if (call.arguments) refuse("arguments", "none where activations are recomputed", "a function");
  if (call.advantage) refuse("advantage", "none where activations are recomputed", "a function");
  const auto kept = make_kept<KeptCall>(call);
  Whole whole(context, x, call);
  BothWays& recurrences = whole.recurrences;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (layer.recurrent && std::holds_alternative<Rwkv7Options>(layer.recurrent->options()) &&
        recurrences.first_value.empty()) {
      Stream y(x, call);
      run(context, i, y, call, whole);
      x = y.rows(context);
      continue;
    }
    const Var inputs[] = {x, call.memory, recurrences.first_value, recurrences.first_value_back};
    const auto stream = make_kept<std::uint64_t>(context.dropout_stream);
    x = autograd::recomputed(
        *context.tape, inputs,
        [this, i, kept, stream, begun = context](autograd::Tape& tape, std::span<const Var> in) {
          Context inner = begun;
          inner.tape = &tape;
          Call own = kept->call;
          own.memory = in[1];
          Whole alone(inner, in[0], own);
          alone.recurrences.first_value = in[2];
          alone.recurrences.first_value_back = in[3];
          Stream y(in[0], own);
          run(inner, i, y, own, alone);
          *stream = inner.dropout_stream;
          return y.rows(inner);
        });
    context.dropout_stream = *stream;
  }
  // The forward calls have filled what these give, which may be gone when backward runs.
  kept->call.weights = {};
  kept->call.log_decays = {};
  return x;
}

}  // namespace fovea::nn
