#include "bench/recurrence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/probes.h"
#include "bench/timing.h"
#include "fovea/core/executor.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/recurrence.h"
#include "fovea/plan/selective_scan.h"

namespace fovea::bench {
namespace {

// Uniform in [low, high).
Tensor uniform(const Shape& shape, std::uint64_t seed, float low, float high) {
  Tensor x = random_operand(shape, seed);
  float* elements = x.data<float>();
  for (std::int64_t i = 0; i < x.count(); ++i) elements[i] = low + (high - low) * 0.5f * (elements[i] + 1.0f);
  return x;
}

// The operands of a call and their gradients. Rows of keys have a length below 1, so that no write grows.
struct Operands {
  Tensor query, key, value, log_decay, beta, a, b, output, denominator, d_output;
  Tensor d_query, d_key, d_value, d_log_decay, d_beta, d_a, d_b;

  Operands(const RecurrenceBench& o, const RecurrenceSpec& spec, std::int64_t dim) {
    const Shape rows{o.batch, o.heads, o.len, dim}, weights{o.batch, o.heads, o.len};
    const float reach = 1.0f / std::sqrt(static_cast<float>(dim));
    const auto like = [](const Tensor& x) { return x ? Tensor(x.dtype(), x.shape()) : Tensor(); };
    const auto drawn = [&](std::uint64_t seed, float bound) {
      return rounded_to(o.dtype, uniform(rows, seed, -bound, bound));
    };
    query = drawn(1, 1);
    key = drawn(2, reach);
    value = drawn(3, 1);
    d_output = drawn(4, 1);
    output = like(value);
    if (std::holds_alternative<ScalarDecay>(spec.decay)) log_decay = uniform(weights, 5, -0.5f, 0);
    if (std::holds_alternative<KeyDecay>(spec.decay)) log_decay = uniform(rows, 5, -0.5f, 0);
    if (std::holds_alternative<DeltaWrite>(spec.write)) beta = uniform(weights, 6, 0, 1);
    if (std::holds_alternative<DiagonalPlusLowRankWrite>(spec.write)) {
      a = drawn(7, reach);
      b = drawn(8, reach);
    }
    if (std::holds_alternative<KeySum>(spec.normalizer)) denominator = Tensor(DType::f32, weights);
    d_query = like(query);
    d_key = like(key);
    d_value = like(value);
    d_log_decay = like(log_decay);
    d_beta = like(beta);
    d_a = like(a);
    d_b = like(b);
  }
  RecurrenceInputs inputs() const {
    return {.query = query, .key = key, .value = value, .log_decay = log_decay, .beta = beta, .a = a, .b = b};
  }
};

double limit_of(const RecurrenceBench& o, const RecurrenceSpec& spec, std::int64_t dim, double flops,
                double passes) {
  const ProbeOptions options{.threads = o.threads};
  const double tokens = static_cast<double>(o.batch * o.heads * o.len);
  const double gates = std::holds_alternative<KeyDecay>(spec.decay)      ? static_cast<double>(dim)
                       : std::holds_alternative<ScalarDecay>(spec.decay) ? 1.0
                                                                         : 0.0;
  const double bytes =
      passes * (4.0 * static_cast<double>(size_of(o.dtype)) * static_cast<double>(dim) + 4.0 * gates);
  const Probe products = o.dtype == DType::bf16 ? best_bf16_products() : Probe::fma_f32;
  return tokens * std::max({flops / measure(products, options), gates / measure(Probe::exponential, options),
                            bytes / measure(Probe::read, options)});
}

RecurrenceRow measure_row(const RecurrenceBench& o, const NamedRecurrence& which, std::int64_t dim,
                          Executor& executor) {
  const Operands x(o, which.spec, dim);
  const RecurrencePlan plan = make_recurrence_plan(which.spec,
                                                   {.batch = o.batch,
                                                    .num_query_heads = o.heads,
                                                    .num_key_heads = o.heads,
                                                    .num_heads = o.heads,
                                                    .len = o.len,
                                                    .key_dim = dim},
                                                   {.dtype = o.dtype, .kernel = o.kernel});
  RecurrenceRow row{.name = which.name, .dim = dim};
  row.forward = row.saving = row.backward = row.again = row.forward_limit = row.backward_limit =
      std::numeric_limits<double>::infinity();
  const std::int64_t saved_size = saved_states_size(plan, x.inputs());
  const Tensor saved = saved_size > 0 ? Tensor(DType::f32, {saved_size}) : Tensor();
  const double flops = least_flops(which.spec, dim, dim);
  const Clock clock = o.threads == 1 ? Clock::cpu : Clock::wall;
  // In turns with the probes, so that other work of the machine slows all of them alike.
  for (std::int64_t turn = 0; turn <= o.repeat; ++turn) {
    const auto run_forward = [&](const Tensor& states) {
      recur(plan, x.inputs(), {.output = x.output, .denominator = x.denominator, .saved_states = states},
            {.executor = &executor});
    };
    const auto run_backward = [&](const Tensor& states) {
      recur_backward(
          plan, x.inputs(),
          {.d_output = x.d_output, .output = x.output, .denominator = x.denominator, .saved_states = states},
          {.query = x.d_query,
           .key = x.d_key,
           .value = x.d_value,
           .log_decay = x.d_log_decay,
           .beta = x.d_beta,
           .a = x.d_a,
           .b = x.d_b},
          {.executor = &executor});
    };
    const auto seconds = [&](const auto& run_with, const Tensor& states) {
      return best_seconds(
          1, [&] { run_with(states); }, clock);
    };
    const double forward = seconds(run_forward, {}), saving = seconds(run_forward, saved),
                 backward = seconds(run_backward, saved), again = seconds(run_backward, {});
    if (turn == 0) continue;
    row.forward = std::min(row.forward, forward);
    row.saving = std::min(row.saving, saving);
    row.backward = std::min(row.backward, backward);
    row.again = std::min(row.again, again);
    row.forward_limit = std::min(row.forward_limit, limit_of(o, which.spec, dim, flops, 1));
    row.backward_limit = std::min(row.backward_limit, limit_of(o, which.spec, dim, 2 * flops, 2));
  }
  return row;
}

RecurrenceStepRow measure_step_row(const RecurrenceBench& bench, const NamedRecurrence& which,
                                   std::int64_t dim, Executor& executor) {
  RecurrenceBench o = bench;
  o.heads = o.step_heads;
  o.len = 1;
  const Operands x(o, which.spec, dim);
  const RecurrencePlan plan = make_recurrence_plan(which.spec,
                                                   {.batch = o.batch,
                                                    .num_query_heads = o.heads,
                                                    .num_key_heads = o.heads,
                                                    .num_heads = o.heads,
                                                    .len = 1,
                                                    .key_dim = dim},
                                                   {.dtype = o.dtype, .kernel = o.kernel});
  std::vector<Tensor> states;
  for (std::int64_t layer = 0; layer < o.step_layers; ++layer)
    states.push_back(Tensor::zeros(DType::f32, state_shape(which.spec, plan.shape(), o.batch)));
  const std::int64_t bytes =
      o.step_layers * static_cast<std::int64_t>(states.empty() ? 0 : states.front().bytes());
  RecurrenceStepRow row{.name = which.name, .dim = dim};
  row.seconds = row.limit = std::numeric_limits<double>::infinity();
  RecurrenceInputs inputs = x.inputs();
  const auto token = [&] {
    for (const Tensor& state : states) {
      inputs.initial_state = state;
      recur(plan, inputs, {.output = x.output, .final_state = state, .denominator = x.denominator},
            {.executor = &executor});
    }
  };
  // Tokens follow each other, as the probe's passes do. The first one also writes back what the probe has
  // left in the caches: 32 MB of them add an eighth to a token of 128 MiB.
  constexpr int tokens = 8;
  for (std::int64_t turn = 0; turn < o.repeat; ++turn) {
    token();
    const double seconds = best_seconds(
        1,
        [&] {
          for (int i = 0; i < tokens; ++i) token();
        },
        o.threads == 1 ? Clock::cpu : Clock::wall);
    row.seconds = std::min(row.seconds, seconds / tokens);
    row.limit = std::min(row.limit, 2.0 * static_cast<double>(bytes) /
                                        measure(Probe::update, {.threads = o.threads, .footprint = bytes}));
  }
  return row;
}

}  // namespace

const std::vector<NamedRecurrence>& measured_recurrences() {
  static const std::vector<NamedRecurrence> list{
      {"linear", {}},
      {"linear, elu+1, sum", {.feature_map = EluPlusOne{}, .normalizer = KeySum{}}},
      {"SSD (scalar)", {.decay = ScalarDecay{}}},
      {"GLA (key)", {.decay = KeyDecay{}}},
      {"delta", {.write = DeltaWrite{}}},
      {"gated delta", {.decay = ScalarDecay{}, .write = DeltaWrite{}}},
      {"KDA", {.decay = KeyDecay{}, .write = DeltaWrite{}}},
      {"RWKV-7", {.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}}}};
  return list;
}

bool is_asked(const RecurrenceBench& bench, const std::string& name) {
  return name.find(bench.only) != std::string::npos;
}

double least_flops(const RecurrenceSpec& spec, std::int64_t key_dim, std::int64_t value_dim) {
  return static_cast<double>(4 + 2 * spec.write.index()) * static_cast<double>(key_dim * value_dim);
}

void measure_recurrences(const RecurrenceBench& bench,
                         const std::function<void(const RecurrenceRow&)>& tell) {
  const auto executor = make_thread_pool(bench.threads);
  for (const std::int64_t dim : bench.dims) {
    for (const NamedRecurrence& which : measured_recurrences())
      if (is_asked(bench, which.name)) tell(measure_row(bench, which, dim, *executor));
  }
}

void measure_recurrence_steps(const RecurrenceBench& bench,
                              const std::function<void(const RecurrenceStepRow&)>& tell) {
  if (bench.step_layers == 0) return;
  const auto executor = make_thread_pool(bench.threads);
  for (const std::int64_t dim : bench.dims) {
    for (const NamedRecurrence& which : measured_recurrences())
      if (is_asked(bench, which.name)) tell(measure_step_row(bench, which, dim, *executor));
  }
}

RecurrenceRow measure_selective_scan(const RecurrenceBench& bench, const SelectiveScanBench& scan) {
  const std::int64_t channels = scan.channels, dim = scan.state_dim;
  const Shape rows{bench.batch, bench.len, channels}, pairs{bench.batch, bench.len, 1, dim};
  const Tensor x = uniform(rows, 1, -1, 1), delta = uniform(rows, 2, -6, 0), z = uniform(rows, 3, -1, 1),
               a = uniform({channels, dim}, 4, -16, -1), b = uniform(pairs, 5, -1, 1),
               c = uniform(pairs, 6, -1, 1), d = uniform({channels}, 7, -1, 1),
               d_output = uniform(rows, 8, -1, 1);
  const auto like = [](const Tensor& tensor) { return Tensor(tensor.dtype(), tensor.shape()); };
  const Tensor output = like(x), d_x = like(x), d_delta = like(x), d_z = like(x), d_a = like(a),
               d_b = like(b), d_c = like(c), d_d = like(d);
  const SelectiveScanPlan plan = make_selective_scan_plan(
      {}, {.batch = bench.batch, .len = bench.len, .channels = channels, .state_dim = dim});
  const SelectiveScanInputs inputs{.x = x, .delta = delta, .a = a, .b = b, .c = c, .d = d, .z = z};
  const auto executor = make_thread_pool(bench.threads);
  const Clock clock = bench.threads == 1 ? Clock::cpu : Clock::wall;
  const ProbeOptions options{.threads = bench.threads};
  const double elements = static_cast<double>(x.count());
  RecurrenceRow row{.name = "selective scan", .dim = channels};
  row.forward = row.backward = row.forward_limit = row.backward_limit =
      std::numeric_limits<double>::infinity();
  for (std::int64_t turn = 0; turn <= bench.repeat; ++turn) {
    const double forward = best_seconds(
        1, [&] { selective_scan(plan, inputs, {.output = output}, {.executor = executor.get()}); }, clock);
    const double backward = best_seconds(
        1,
        [&] {
          selective_scan_backward(
              plan, inputs, {.d_output = d_output},
              {.x = d_x, .delta = d_delta, .a = d_a, .b = d_b, .c = d_c, .d = d_d, .z = d_z},
              {.executor = executor.get()});
        },
        clock);
    if (turn == 0) continue;
    // 5 operations of an element of a state forward (2 for each multiply-add), 16 backward.
    const double exponentials =
                     elements * static_cast<double>(dim + 2) / measure(Probe::exponential, options),
                 flops = elements * static_cast<double>(dim) / measure(Probe::fma_f32, options),
                 bytes = 4.0 * elements / measure(Probe::read, options);
    row.forward = std::min(row.forward, forward);
    row.backward = std::min(row.backward, backward);
    row.forward_limit = std::min(row.forward_limit, std::max({exponentials, 5 * flops, 4 * bytes}));
    row.backward_limit = std::min(row.backward_limit, std::max({exponentials, 16 * flops, 7 * bytes}));
  }
  return row;
}

double measure_causal_attention(const RecurrenceBench& bench, std::int64_t dim, std::int64_t len) {
  const auto executor = make_thread_pool(bench.threads);
  const Shape shape{bench.batch, bench.heads, len, dim};
  const auto drawn = [&](std::uint64_t seed) { return rounded_to(bench.dtype, random_operand(shape, seed)); };
  const Tensor query = drawn(1), key = drawn(2), value = drawn(3), output(bench.dtype, shape);
  const AttentionPlan plan = make_plan({.mask = Causal{}},
                                       {.batch = bench.batch,
                                        .num_query_heads = bench.heads,
                                        .num_kv_heads = bench.heads,
                                        .query_len = len,
                                        .key_len = len,
                                        .head_dim = dim},
                                       {.dtype = bench.dtype});
  return best_seconds(bench.repeat, [&] {
    attend(plan, {.query = query, .key = key, .value = value}, {.output = output},
           {.executor = executor.get()});
  });
}

}  // namespace fovea::bench
