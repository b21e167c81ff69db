#include "bench/packed.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/timing.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {
namespace {

struct Sequence {
  std::int64_t queries = 0, keys = 0;
};

struct Mix {
  std::string name;
  std::vector<Sequence> sequences = {};
};

std::vector<Mix> mixes(std::int64_t longest) {
  Mix prompts{"prompts"}, steps{"steps"}, both{"prompts and steps"}, many{"64 of either, uniform"},
      sentences{"sentences of 8 to 20"};
  for (std::int64_t length = 1; length <= longest; length *= 2) {
    prompts.sequences.push_back({length, length});
    steps.sequences.push_back({1, length});
    both.sequences.push_back({length, length});
    both.sequences.push_back({1, length});
  }
  // Prompts are up to an eighth of the longest sequence, and decoding steps follow up to all of it.
  PhiloxStream random(1);
  for (int n = 0; n < 32; ++n) {
    const auto below = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(random.next_below(static_cast<std::uint32_t>(most)));
    };
    const std::int64_t prompt = below(std::max<std::int64_t>(longest / 8, 1));
    many.sequences.push_back({prompt, prompt});
    many.sequences.push_back({1, below(longest)});
  }
  // As in a batch of a training: 14 words in the mean.
  for (std::int64_t n = 0; n < 64; ++n) {
    const std::int64_t words = std::min<std::int64_t>(8 + n * 5 % 13, longest);
    sentences.sequences.push_back({words, words});
  }
  return {prompts, steps, both, many, sentences};
}

struct Tensors {
  Tensor query, key, value, output, log_sum_exp, d_output, d_query, d_key, d_value;
  Tensors(const PackedBench& o, DType dtype, std::int64_t queries, std::int64_t keys) {
    const auto make = [&](std::int64_t heads, std::int64_t rows, std::uint64_t seed) {
      return rounded_to(dtype, random_operand({1, heads, rows, o.head_dim}, seed));
    };
    query = make(o.heads, queries, 1);
    key = make(o.kv_heads, keys, 2);
    value = make(o.kv_heads, keys, 3);
    d_output = make(o.heads, queries, 4);
    output = Tensor(dtype, query.shape());
    log_sum_exp = Tensor(DType::f32, {1, o.heads, queries});
    d_query = Tensor(dtype, query.shape());
    d_key = Tensor(dtype, key.shape());
    d_value = Tensor(dtype, value.shape());
  }
  AttentionInputs inputs() const { return {.query = query, .key = key, .value = value}; }
  void run(const AttentionPlan& plan, const AttentionInputs& in, Executor& executor) const {
    attend(plan, in, {.output = output, .log_sum_exp = log_sum_exp}, {.executor = &executor});
  }
  void run_backward(const AttentionPlan& plan, const AttentionInputs& in, Executor& executor) const {
    attend_backward(plan, in, output, log_sum_exp, d_output, {d_query, d_key, d_value},
                    {.executor = &executor});
  }
};

AttentionPlan plan_of(const PackedBench& o, DType dtype, std::int64_t batch, const Sequence& longest) {
  return make_plan({.mask = Causal{}},
                   {.batch = batch,
                    .num_query_heads = o.heads,
                    .num_kv_heads = o.kv_heads,
                    .query_len = longest.queries,
                    .key_len = longest.keys,
                    .head_dim = o.head_dim,
                    .value_dim = o.head_dim},
                   {.dtype = dtype, .kernel = o.kernel});
}

PackedRow measure(const PackedBench& o, const Mix& mix, DType dtype, Executor& executor) {
  std::vector<std::int64_t> query_starts{0}, key_starts{0};
  std::vector<std::pair<AttentionPlan, Tensors>> alone;
  for (const Sequence& sequence : mix.sequences) {
    query_starts.push_back(query_starts.back() + sequence.queries);
    key_starts.push_back(key_starts.back() + sequence.keys);
    alone.emplace_back(plan_of(o, dtype, 1, sequence), Tensors(o, dtype, sequence.queries, sequence.keys));
  }
  const Tensors packed(o, dtype, query_starts.back(), key_starts.back());
  const AttentionPlan plan = plan_of(o, dtype, static_cast<std::int64_t>(mix.sequences.size()),
                                     {longest_entry(query_starts), longest_entry(key_starts)});
  AttentionInputs in = packed.inputs();
  in.query_starts = query_starts;
  in.key_starts = key_starts;
  const auto together = [&] { packed.run(plan, in, executor); };
  const auto together_back = [&] { packed.run_backward(plan, in, executor); };
  const auto apart = [&] {
    for (const auto& [own, tensors] : alone) tensors.run(own, tensors.inputs(), executor);
  };
  const auto apart_back = [&] {
    for (const auto& [own, tensors] : alone) tensors.run_backward(own, tensors.inputs(), executor);
  };
  // In turns, so that other work of the machine slows all of them alike.
  const Clock clock = executor.thread_count() == 1 ? Clock::cpu : Clock::wall;
  double best[4];
  std::fill_n(best, 4, std::numeric_limits<double>::infinity());
  for (std::int64_t turn = 0; turn <= o.repeat; ++turn) {
    const double now[] = {best_seconds(1, together, clock), best_seconds(1, apart, clock),
                          best_seconds(1, together_back, clock), best_seconds(1, apart_back, clock)};
    for (std::size_t n = 0; turn > 0 && n < 4; ++n) best[n] = std::min(best[n], now[n]);
  }
  return {.name = mix.name,
          .sequences = std::ssize(mix.sequences),
          .dtype = dtype,
          .threads = executor.thread_count(),
          .forward_seconds = best[0],
          .forward_ratio = best[0] / best[1],
          .backward_seconds = best[2],
          .backward_ratio = best[2] / best[3]};
}

}  // namespace

void measure_packed(const PackedBench& bench, const std::function<void(const PackedRow&)>& tell) {
  const auto all = make_thread_pool(bench.threads);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Mix& mix : mixes(bench.longest)) {
      tell(measure(bench, mix, dtype, serial_executor()));
      if (bench.threads > 1) tell(measure(bench, mix, dtype, *all));
    }
  }
}

}  // namespace fovea::bench
