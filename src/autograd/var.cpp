#include "fovea/autograd/var.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/record.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

Var Tape::use(Parameter& parameter) {
  for (const auto& [known, node] : parameters_) {
    if (known == &parameter) return {parameter.value, node};
  }
  if (parameter.value.empty() && parameter.packed)
    throw InvalidArgument("Tape::use", parameter.name, "a value to train on", "a model that was read packed");
  if (!parameter.gradient) parameter.gradient = Tensor::zeros(DType::f32, parameter.value.shape());
  Node& node = nodes_.emplace_back();
  node.tape = this;
  node.gradient = parameter.gradient;  // shared storage: contributions are added straight to the parameter
  parameters_.emplace_back(&parameter, &node);
  return {parameter.value, &node};
}

Node* Tape::record(std::function<void(const Tensor&)> backward) {
  Node& node = nodes_.emplace_back();
  node.tape = this;
  node.label = ProfileSpan::current();
  node.backward = std::move(backward);
  return &node;
}

void Tape::backward(const Var& loss) {
  if (!loss.recorded() || loss.node()->tape != this || loss.value().count() != 1) {
    throw InvalidArgument("Tape::backward", "loss", "one element recorded on this tape",
                          loss.recorded() ? to_string(loss.shape()) : "a value that was not recorded");
  }
  Tensor one(DType::f32, loss.shape());
  one.fill(1.0);
  backward(loss, one);
}

void Tape::backward(const Var& result, const Tensor& gradient) {
  if (!result.recorded() || result.node()->tape != this)
    throw InvalidArgument("Tape::backward", "result", "a value recorded on this tape",
                          result.recorded() ? "one of another tape" : "a value that was not recorded");
  if (!gradient || !(gradient.shape() == result.shape()))
    throw InvalidArgument("Tape::backward", "gradient", to_string(result.shape()),
                          gradient ? to_string(gradient.shape()) : "none");
  accumulate(result, gradient);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (node->backward && node->gradient) {
      std::optional<ProfileSpan> span;
      if (node->label) span.emplace(*node->label, ProfileWork{}, true);
      node->backward(node->gradient);
    }
    node->backward = nullptr;  // releases what forward saved, so that memory falls while backward goes on
    node->gradient = Tensor();
  }
  clear();
}

void Tape::clear() {
  nodes_.clear();
  parameters_.clear();
}

void accumulate(const Var& var, Tensor contribution) {
  if (!var.recorded() || !contribution) return;
  Node& node = *var.node();
  if (!node.gradient) {
    node.gradient = contribution.reshape(var.shape());
    return;
  }
  if (contribution.count() != node.gradient.count()) {
    throw InvalidArgument("accumulate", "contribution", to_string(node.gradient.shape()),
                          to_string(contribution.shape()));
  }
  static constexpr ProfileLabel label{"gradients added", ProfilePart::elementwise};
  const ProfileSpan span(label);
  float* sum = node.gradient.data<float>();
  const float* added = contribution.data<float>();
  for_pieces(contribution.count(), [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) sum[i] += added[i];
  });
}

void accumulate_copy(const Var& var, const Tensor& contribution) {
  if (!var.recorded() || !contribution || var.node()->gradient) return accumulate(var, contribution);
  Tensor copy(DType::f32, contribution.shape());
  for_pieces(copy.count(), [&](std::int64_t begin, std::int64_t end) {
    std::copy(contribution.data<float>() + begin, contribution.data<float>() + end,
              copy.data<float>() + begin);
  });
  accumulate(var, copy);
}

Tensor& gradient_of(const Var& var) {
  if (!var.recorded())
    throw InvalidArgument("gradient_of", "var", "a recorded value", "one that was not recorded");
  Tensor& gradient = var.node()->gradient;
  if (!gradient) {
    gradient = Tensor(DType::f32, var.shape());
    for_pieces(gradient.count(), [&](std::int64_t begin, std::int64_t end) {
      std::fill(gradient.data<float>() + begin, gradient.data<float>() + end, 0.0f);
    });
  }
  return gradient;
}

}  // namespace fovea::autograd
