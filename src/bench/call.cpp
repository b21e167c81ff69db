#include "bench/call.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numbers>

#include "fovea/core/error.h"
#include "fovea/core/philox.h"

namespace fovea::bench {
namespace {

// A prime number, so that the numbers do not repeat from row to row, whatever the size of a row.
constexpr std::size_t period = 1048573;

const std::vector<float>& normal_numbers() {
  static const std::vector<float> numbers = [] {
    PhiloxStream stream(7);
    std::vector<float> drawn(period + 1);
    for (std::size_t i = 0; i < period; i += 2) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(stream.next_uniform()))),
                   angle = 2.0 * std::numbers::pi * static_cast<double>(stream.next_uniform());
      drawn[i] = static_cast<float>(radius * std::cos(angle));
      drawn[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    drawn.resize(period);
    return drawn;
  }();
  return numbers;
}

template <class T>
Tensor normal_as(DType dtype, Shape shape, std::size_t seed) {
  Tensor tensor(dtype, shape);
  const std::vector<float>& numbers = normal_numbers();
  std::size_t at = seed * 104729 % period;
  T* data = tensor.data<T>();
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    data[i] = T(numbers[at]);
    at = at + 1 == period ? 0 : at + 1;
  }
  return tensor;
}

Tensor normal(DType dtype, Shape shape, std::size_t seed) {
  if (dtype == DType::bf16) return normal_as<bfloat16>(dtype, shape, seed);
  if (dtype == DType::f16) return normal_as<float16>(dtype, shape, seed);
  return normal_as<float>(dtype, shape, seed);
}

}  // namespace

BenchCall::BenchCall(const BenchCase& c, const std::string& kernel, Executor& executor)
    : case_(c),
      plan_(make_plan(spec_of(c), shape_of(c.shape),
                      {.dtype = c.dtype, .precision = c.precision, .kernel = kernel})),
      executor_(executor) {
  const BenchShape& s = c.shape;
  const Shape queries{s.batch, s.query_heads, s.query_len, s.head_dim},
      keys{s.batch, s.kv_heads, s.key_len, s.head_dim};
  query_ = normal(c.dtype, queries, 1);
  key_ = normal(c.dtype, keys, 2);
  value_ = normal(c.dtype, keys, 3);
  output_ = Tensor(c.dtype, queries);
  if (c.score == "additive") vector_ = normal(DType::f32, {s.head_dim}, 4);
  const bool backward = c.pass == Pass::backward;
  const int threads = executor_.thread_count();
  std::size_t bytes = workspace_bytes(plan_, threads);
  if (backward) bytes = std::max(bytes, backward_workspace_bytes(plan_, threads));
  memory_ = Tensor(DType::f32, {static_cast<std::int64_t>(bytes / sizeof(float) + 1)});
  workspace_ = {memory_.raw(), memory_.bytes()};
  inputs_ = {.query = query_, .key = key_, .value = value_};
  if (vector_) inputs_.arguments.set("score.v", vector_);
  if (!backward) return;
  log_sum_exp_ = Tensor(DType::f32, {s.batch, s.query_heads, s.query_len});
  d_output_ = normal(c.dtype, queries, 5);
  d_query_ = Tensor(c.dtype, queries);
  d_key_ = Tensor(c.dtype, keys);
  d_value_ = Tensor(c.dtype, keys);
  attend(plan_, inputs_, {.output = output_, .log_sum_exp = log_sum_exp_},
         {.executor = &executor_, .workspace = workspace_});
}

void BenchCall::call() {
  const CallResources resources{.executor = &executor_, .workspace = workspace_};
  if (case_.pass == Pass::forward) return attend(plan_, inputs_, {.output = output_}, resources);
  attend_backward(plan_, inputs_, output_, log_sum_exp_, d_output_,
                  {.query = d_query_, .key = d_key_, .value = d_value_}, resources);
}

std::vector<double> BenchCall::run(std::int64_t count) {
  std::vector<double> seconds;
  if (count > 1) call();
  for (std::int64_t n = 0; n < count; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return seconds;
}

double BenchCall::error() const {
  const BenchShape& s = case_.shape;
  BenchCase one = case_;
  one.shape.batch = one.shape.query_heads = one.shape.kv_heads = 1;
  const auto first = [](const Tensor& x, std::int64_t rows, std::int64_t dim) {
    Tensor wide(DType::f64, {1, 1, rows, dim});
    for (std::int64_t i = 0; i < wide.count(); ++i) wide.data<double>()[i] = x.data<float>()[i];
    return wide;
  };
  const Tensor q = first(query_, s.query_len, s.head_dim), k = first(key_, s.key_len, s.head_dim),
               v = first(value_, s.key_len, s.head_dim), got = first(output_, s.query_len, s.head_dim);
  const Tensor want(DType::f64, got.shape());
  attend(make_plan(spec_of(one), shape_of(one.shape), {.dtype = DType::f64}),
         {.query = q, .key = k, .value = v}, {.output = want}, {.executor = &executor_});
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < want.count(); ++i) {
    const double x = want.data<double>()[i], e = got.data<double>()[i] - x;
    difference += e * e;
    size += x * x;
  }
  return std::sqrt(difference / size);
}

std::map<std::string, Tensor> BenchCall::tensors() const {
  std::map<std::string, Tensor> all{{"query", query_}, {"key", key_}, {"value", value_}, {"output", output_}};
  if (vector_) all["v"] = vector_;
  if (case_.pass == Pass::backward) {
    all["d_output"] = d_output_;
    all["d_query"] = d_query_;
    all["d_key"] = d_key_;
    all["d_value"] = d_value_;
  }
  return all;
}

void write_raw(const std::filesystem::path& path, const Tensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
  file.close();
  if (!file) throw FileError(path.string(), 0, "cannot be written");
}

}  // namespace fovea::bench
