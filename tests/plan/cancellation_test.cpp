// Calls of every kernel, forward and backward, cancelled at each point where they look for a stop.
#include "fovea/core/cancellation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fovea/core/executor.h"
#include "plan/cases.h"

namespace fovea::testing {
namespace {

// Two query heads that share one kv head; more queries than a block, more keys than a tile.
constexpr std::int64_t heads = 2, queries = 60, keys = 700, dim = 8;

struct Sample {
  std::string name;
  AttentionSpec spec;
  std::int64_t query_len = queries;
};

std::vector<Sample> samples() {
  return {{"softmax", {.mask = Causal{}}},     {"few queries", {}, 3},
          {"mods", {.mods = {SoftCap{5.0}}}},  {"whole rows", {.normalizer = Sparsemax{}}},
          {"additive", {.score = Additive{}}}, {"coverage", {.score = Coverage{}}}};
}

class Call {
 public:
  Call(const Sample& sample, const std::string& kernel)
      : plan_(make_plan(sample.spec,
                        {.num_query_heads = heads,
                         .query_len = sample.query_len,
                         .key_len = keys,
                         .head_dim = dim,
                         .value_dim = dim,
                         .hidden = dim},
                        {.precision = Precision::medium, .kernel = kernel})),
        query_(random_tensor(DType::f32, {1, heads, sample.query_len, dim}, 1)),
        key_(random_tensor(DType::f32, {1, 1, keys, dim}, 2)),
        value_(random_tensor(DType::f32, {1, 1, keys, dim}, 3)),
        d_output_(random_tensor(DType::f32, query_.shape(), 4)),
        vector_(random_tensor(DType::f32, {dim}, 5)),
        output_(DType::f32, query_.shape()),
        log_sum_exp_(DType::f32, {1, heads, sample.query_len}),
        d_query_(DType::f32, query_.shape()),
        d_key_(DType::f32, key_.shape()),
        d_value_(DType::f32, value_.shape()) {
    inputs_ = {.query = query_, .key = key_, .value = value_};
    if (definition(sample.spec.score).vector >= 0) inputs_.arguments.set("score.v", vector_);
    if (definition(sample.spec.score).coverage >= 0) inputs_.arguments.set("score.w", vector_);
  }
  std::string_view kernel() const { return plan_.kernel(); }
  void forward(Executor& executor) {
    attend(plan_, inputs_, {.output = output_, .log_sum_exp = log_sum_exp_}, {.executor = &executor});
  }
  void backward(Executor& executor) {
    attend_backward(plan_, inputs_, output_, log_sum_exp_, d_output_,
                    {.query = d_query_, .key = d_key_, .value = d_value_}, {.executor = &executor});
  }
  // The bits of the results.
  std::vector<std::byte> results() const {
    std::vector<std::byte> all;
    for (const Tensor* t : {&output_, &log_sum_exp_, &d_query_, &d_key_, &d_value_}) {
      const auto* begin = static_cast<const std::byte*>(t->raw());
      all.insert(all.end(), begin, begin + t->count() * static_cast<std::int64_t>(sizeof(float)));
    }
    return all;
  }

 private:
  AttentionPlan plan_;
  Tensor query_, key_, value_, d_output_, vector_, output_, log_sum_exp_, d_query_, d_key_, d_value_;
  AttentionInputs inputs_;
};

// Counts how often `call` looks for a stop.
template <class Body>
std::int64_t questions(Body&& call) {
  std::int64_t asked = 0;
  CancellableExecutor executor(serial_executor(), [&] {
    ++asked;
    return false;
  });
  call(executor);
  return asked;
}

template <class Check>
void for_each_call(Check&& check) {
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const Sample& sample : samples()) {
      SCOPED_TRACE(info.isa + ", " + sample.name);
      Call call(sample, info.isa);
      check(call, sample);
    }
  }
}

TEST(CancelledCall, StopsWhereverItAsks) {
  for_each_call([](Call& call, const Sample&) {
    call.forward(serial_executor());
    call.backward(serial_executor());
    const std::vector<std::byte> wanted = call.results();
    for (const bool forward : {true, false}) {
      const auto run = [&](Executor& executor) {
        forward ? call.forward(executor) : call.backward(executor);
      };
      const std::int64_t all = questions(run);
      for (const std::int64_t last : {std::int64_t{0}, all / 2, all - 1}) {
        std::int64_t asked = 0;
        CancellableExecutor executor(serial_executor(), [&] { return ++asked > last; });
        EXPECT_THROW(run(executor), Cancelled) << call.kernel() << ", " << last << " of " << all;
        EXPECT_EQ(asked, last + 1);  // nothing continues after the stop
      }
      // Cancelled calls leave no trace for the next call.
      call.forward(serial_executor());
      call.backward(serial_executor());
      EXPECT_TRUE(call.results() == wanted) << call.kernel();
    }
  });
}

// A unit may take seconds, so kernels look for a stop inside it: at each tile of 128 keys of each block of 48
// queries. The bf16 tile kernels look once a block. Each block here sees at least five whole tiles. Heads may
// share the tiles of few queries.
TEST(CancelledCall, AsksWithinUnits) {
  for_each_call([](Call& call, const Sample& sample) {
    call.forward(serial_executor());
    const std::int64_t blocks = sample.query_len < queries ? 1 : heads * ((queries + 47) / 48),
                       least = blocks * (call.kernel().ends_with(" tiles") ? 1 : 5);
    EXPECT_GE(questions([&](Executor& executor) { call.forward(executor); }), least) << call.kernel();
    EXPECT_GE(questions([&](Executor& executor) { call.backward(executor); }), least) << call.kernel();
  });
}

TEST(CancelledCall, ThreadsOfAPoolStopTogether) {
  const auto pool = make_thread_pool(3);
  for_each_call([&](Call& call, const Sample&) {
    call.forward(*pool);
    const std::vector<std::byte> wanted = call.results();
    std::stop_source stop;
    CancellableExecutor executor(*pool, stop.get_token());
    call.forward(executor);  // without a stop, the executor changes nothing
    EXPECT_TRUE(call.results() == wanted) << call.kernel();
    stop.request_stop();
    EXPECT_THROW(call.forward(executor), Cancelled);
    EXPECT_THROW(call.backward(executor), Cancelled);
  });
}

}  // namespace
}  // namespace fovea::testing
