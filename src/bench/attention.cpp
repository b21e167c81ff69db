#include "bench/attention.h"

#include <algorithm>

#include "autograd/gemm.h"
#include "bench/cases.h"
#include "bench/memory.h"
#include "fovea/attention/expression.h"

namespace fovea::bench {
namespace {

double product_gflops(Clock clock) {
  constexpr std::int64_t n = 1536;
  const Tensor a = random_operand({n, n}, 1), b = random_operand({n, n}, 2), c(DType::f32, {n, n});
  const double seconds = best_seconds(
      5,
      [&] {
        autograd::gemm(n, n, n, {a.data<float>(), n}, {b.data<float>(), n}, 0.0f, c.data<float>(), n);
      },
      clock);
  return 2e-9 * n * n * n / seconds;
}

struct Measured {
  double forward_seconds, forward_megabytes, backward_seconds, backward_megabytes;
};

// Runs in a process of its own; the memory is the growth of that process.
Measured measure(const AttentionBench& bench, const AttentionPlan& plan, std::int64_t length) {
  const AttentionSpec& spec = plan.spec();
  const AttentionSizes& s = bench.sizes;
  reset_peak_memory();
  const double before = peak_memory();
  const Shape queries{s.batch, s.heads, length, s.head_dim}, keys{s.batch, s.kv_heads, length, s.head_dim};
  const Tensor q = random_operand(queries, 1), k = random_operand(keys, 2), v = random_operand(keys, 3),
               vector = random_operand({s.head_dim}, 4), matrix = random_operand({s.head_dim, s.head_dim}, 5),
               output(DType::f32, queries), lse(DType::f32, {s.batch, s.heads, length});
  AttentionInputs in{.query = q, .key = k, .value = v};
  if (std::holds_alternative<Additive>(spec.score)) in.arguments.set("score.v", vector);
  if (std::holds_alternative<Bilinear>(spec.score)) in.arguments.set("score.W", matrix);
  Measured measured{};
  measured.forward_seconds = best_seconds(
      bench.repeat, [&] { attend(plan, in, {.output = output, .log_sum_exp = lse}); }, bench.clock);
  measured.forward_megabytes = peak_memory() - before;
  const Tensor d_output = random_operand(queries, 6), d_q(DType::f32, queries), d_k(DType::f32, keys),
               d_v(DType::f32, keys);
  measured.backward_seconds = best_seconds(
      bench.repeat,
      [&] { attend_backward(plan, in, output, lse, d_output, {.query = d_q, .key = d_k, .value = d_v}); },
      bench.clock);
  measured.backward_megabytes = peak_memory() - before;
  return measured;
}

Measured measure_in_own_process(const AttentionBench& bench, const AttentionPlan& plan, std::int64_t length) {
  const std::vector<double> numbers = in_own_process([&] {
    const Measured m = measure(bench, plan, length);
    return std::vector<double>{m.forward_seconds, m.forward_megabytes, m.backward_seconds,
                               m.backward_megabytes};
  });
  return {numbers.at(0), numbers.at(1), numbers.at(2), numbers.at(3)};
}

void better(Measured& best, const Measured& next) {
  best.forward_seconds = std::min(best.forward_seconds, next.forward_seconds);
  best.forward_megabytes = std::min(best.forward_megabytes, next.forward_megabytes);
  best.backward_seconds = std::min(best.backward_seconds, next.backward_seconds);
  best.backward_megabytes = std::min(best.backward_megabytes, next.backward_megabytes);
}

// Measures all rows in each round, so that other work of the machine slows all rows alike.
std::vector<Measured> measure_rounds(const AttentionBench& bench, const std::vector<AttentionPlan>& plans,
                                     std::int64_t length) {
  std::vector<Measured> rows;
  for (std::int64_t round = 0; round < bench.rounds; ++round) {
    for (std::size_t n = 0; n < plans.size(); ++n) {
      const Measured row = measure_in_own_process(bench, plans[n], length);
      if (round == 0) rows.push_back(row);
      better(rows[n], row);
    }
  }
  return rows;
}

}  // namespace

double product_limit(Clock clock) {
  return in_own_process([clock] { return std::vector<double>{product_gflops(clock)}; }).at(0);
}

AttentionPlan plan_for(const AttentionBench& bench, const Mask& mask, std::int64_t length) {
  const AttentionSizes& s = bench.sizes;
  return make_plan({.score = bench.score, .mask = mask},
                   {.batch = s.batch,
                    .num_query_heads = s.heads,
                    .num_kv_heads = s.kv_heads,
                    .query_len = length,
                    .key_len = length,
                    .head_dim = s.head_dim,
                    .value_dim = s.head_dim,
                    .hidden = s.head_dim},
                   {.kernel = bench.kernel});
}

std::vector<AttentionRow> measure_masks(const AttentionBench& bench, const std::vector<Mask>& masks,
                                        std::int64_t length, double limit) {
  std::vector<AttentionPlan> plans;
  for (const Mask& mask : masks) plans.push_back(plan_for(bench, mask, length));
  const std::vector<Measured> measured = measure_rounds(bench, plans, length);
  const double all_pairs = static_cast<double>(length) * static_cast<double>(length);
  const Measured* full = nullptr;
  for (std::size_t n = 0; n < masks.size(); ++n) {
    if (to_string(masks[n]) == "everything") full = &measured[n];
  }
  const auto heads = static_cast<double>(bench.sizes.batch * bench.sizes.heads * bench.sizes.head_dim);
  std::vector<AttentionRow> rows;
  for (std::size_t n = 0; n < masks.size(); ++n) {
    const auto pairs = static_cast<double>(visible_pairs(masks[n], length, length));
    const auto cost = [&](int products, double Measured::*seconds, double Measured::*megabytes) {
      PassCost pass{.seconds = measured[n].*seconds, .megabytes = measured[n].*megabytes};
      pass.gflops = 2e-9 * products * pairs * heads / pass.seconds;
      pass.share_of_limit = pass.gflops / limit;
      if (full) pass.per_pair = pass.seconds / pairs / (full->*seconds / all_pairs);
      return pass;
    };
    // Backward has five products: the scores again, dP, dV, dQ, dK.
    rows.push_back({pairs / all_pairs, cost(2, &Measured::forward_seconds, &Measured::forward_megabytes),
                    cost(5, &Measured::backward_seconds, &Measured::backward_megabytes)});
  }
  return rows;
}

}  // namespace fovea::bench
