#include "fovea/nn/module.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/fnv1a.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"

namespace fovea::nn {
namespace {

// The initial values of a parameter depend on its name, not on when it was declared.
std::uint64_t hash_of(std::string_view name) noexcept {
  Fnv1a hash;
  hash.mix(name);
  return hash.value();
}

// Element i is draw(random), where `random` stands behind `numbers` random numbers for each element before.
// So pieces are drawn side by side, with the bits of one stream.
template <class Draw>
void draw_values(const Tensor& values, std::uint64_t key, std::uint64_t numbers, Draw&& draw) {
  constexpr std::int64_t piece = 1 << 15;
  const std::int64_t count = values.count();
  default_executor().parallel_for((count + piece - 1) / piece, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit * piece, end = std::min(count, begin + piece);
    PhiloxStream random(key, numbers * static_cast<std::uint64_t>(begin));
    for (std::int64_t i = begin; i < end; ++i) values.data<float>()[i] = draw(random);
  });
}

}  // namespace

Parameter& ParameterSet::declare(std::string name, Shape shape) {
  if (contains(name)) throw InvalidArgument("ParameterSet", "name", "a name not yet declared", name);
  Tensor value = source_ ? source_(name, shape) : Tensor(DType::f32, shape);
  if (!(value.shape() == shape) || value.dtype() != DType::f32)
    throw InvalidArgument("ParameterSet", "source", name + " in f32 " + to_string(shape),
                          std::string(to_string(value.dtype())) + " " + to_string(value.shape()));
  Parameter& parameter =
      parameters_.emplace_back(Parameter{.name = std::move(name),
                                         .value = std::move(value),
                                         .gradient = source_ ? Tensor() : Tensor::zeros(DType::f32, shape),
                                         .given = source_ != nullptr});
  by_name_.emplace(parameter.name, &parameter);
  return parameter;
}

Parameter& ParameterSet::xavier(std::string name, Shape shape, float gain) {
  Parameter& parameter = declare(std::move(name), shape);
  if (given()) return parameter;
  const auto fan = static_cast<float>(shape[0] + (shape.rank() > 1 ? shape[1] : 1));
  const float bound = gain * std::sqrt(6.0f / fan);
  draw_values(parameter.value, seed_ ^ hash_of(parameter.name), 1,
              [&](PhiloxStream& random) { return (2.0f * random.next_uniform() - 1.0f) * bound; });
  return parameter;
}

Parameter& ParameterSet::normal(std::string name, Shape shape, float deviation) {
  Parameter& parameter = declare(std::move(name), shape);
  if (given()) return parameter;
  draw_values(parameter.value, seed_ ^ hash_of(parameter.name), 2,
              [&](PhiloxStream& random) { return random.next_normal(deviation); });
  return parameter;
}

Parameter& ParameterSet::constant(std::string name, Shape shape, float value) {
  Parameter& parameter = declare(std::move(name), shape);
  if (!given()) parameter.value.fill(value);
  return parameter;
}

Parameter& ParameterSet::constant(std::string name, const Tensor& value) {
  Parameter& parameter = declare(std::move(name), value.shape());
  if (!given()) std::copy_n(value.data<float>(), value.count(), parameter.value.data<float>());
  return parameter;
}

Parameter& ParameterSet::at(std::string_view name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    throw InvalidArgument("ParameterSet::at", "name", "a declared parameter", std::string(name));
  }
  return *found->second;
}

bool ParameterSet::contains(std::string_view name) const {
  return by_name_.find(name) != by_name_.end();
}

std::int64_t ParameterSet::count() const noexcept {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) total += parameter.value.count();
  return total;
}

void ParameterSet::seal() {
  if (!source_) return;
  source_ = [](const std::string& name, const Shape&) -> Tensor {
    throw InvalidArgument("ParameterSet", "name", "a parameter of the model that was read", name);
  };
}

void ParameterSet::zero_gradients() noexcept {
  for (Parameter& parameter : parameters_) {
    if (parameter.gradient) parameter.gradient.fill(0.0);
  }
}

void ParameterSet::pack(autograd::WeightType type) {
  for (Parameter& parameter : parameters_) {
    if (!parameter.multiplies_rows) continue;
    if (parameter.value.empty())
      throw InvalidArgument("ParameterSet::pack", parameter.name, "a model that was not read packed",
                            "one without other values");
    try {
      parameter.packed = std::make_shared<const autograd::PackedMatrix>(parameter.value, type);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("ParameterSet::pack", parameter.name, error.expected(), error.got());
    }
  }
}

void ParameterSet::unpack() noexcept {
  for (Parameter& parameter : parameters_) {
    if (!parameter.value.empty()) parameter.packed = nullptr;
  }
}

Var Context::dropout(const Var& x, float rate) {
  if (!training() || rate <= 0.0f) return x;
  const autograd::DropoutOf next = next_dropout(rate);
  return autograd::dropout(x, next.rate, next.seed, next.stream);
}

autograd::DropoutOf Context::next_dropout(float rate) {
  if (!training() || rate <= 0.0f) return {};
  return {rate, dropout_seed, dropout_stream++};
}

}  // namespace fovea::nn
