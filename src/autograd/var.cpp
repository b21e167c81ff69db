#include "fovea/autograd/var.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>

#include "autograd/record.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

void* TapeMemory::take(std::size_t bytes) {
  constexpr std::size_t unit = alignof(std::max_align_t), header = (sizeof(Tensor) + unit - 1) / unit * unit;
  // The nodes of an op take some 500 bytes, and those of a translator's step 100 KB.
  constexpr std::size_t first = std::size_t{1} << 14, largest = std::size_t{1} << 18;
  bytes = (bytes + unit - 1) / unit * unit;
  if (!piece_ || piece_.bytes() - used_ < bytes) {
    const std::size_t room = std::max(piece_ ? std::min(2 * piece_.bytes(), largest) : first, header + bytes);
    Tensor next(DType::f32, {static_cast<std::int64_t>((room + sizeof(float) - 1) / sizeof(float))});
    new (next.raw()) Tensor(std::move(piece_));
    piece_ = std::move(next);
    used_ = header;
  }
  return piece_.raw() + std::exchange(used_, used_ + bytes);
}

void TapeMemory::clear() noexcept {
  while (piece_) {
    auto* before = std::launder(reinterpret_cast<Tensor*>(piece_.raw()));
    Tensor next = std::move(*before);
    before->~Tensor();
    piece_ = std::move(next);
  }
  used_ = 0;
}

Var Tape::use(Parameter& parameter) {
  for (Node* known = last_parameter_; known; known = known->parameter_before) {
    if (known->parameter == &parameter) return {parameter.value, known};
  }
  if (parameter.value.empty() && (parameter.packed || parameter.rows))
    throw InvalidArgument("Tape::use", parameter.name, "a value to train on", "a model that was read packed");
  if (!parameter.gradient) parameter.gradient = Tensor::zeros(DType::f32, parameter.value.shape());
  Node* node = append();
  node->gradient = parameter.gradient;  // shared storage: contributions are added straight to the parameter
  node->parameter = &parameter;
  node->parameter_before = std::exchange(last_parameter_, node);
  return {parameter.value, node};
}

Node* Tape::append() {
  Node* node = new (memory_.take(sizeof(Node))) Node;
  node->tape = this;
  node->before = std::exchange(last_, node);
  node->profiled = ProfileSpan::current();
  return node;
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
  for (Node* node = last_; node; node = node->before) {
    if (node->function && node->gradient) {
      std::optional<ProfileSpan> span;
      // Backward reads and writes gradients of the shapes that forward read and wrote. Multiply-adds are
      // added by what multiplies.
      const auto& [label, work] = node->profiled;
      if (label) span.emplace(*label, ProfileWork{.bytes = work.bytes}, true);
      node->call(node->function, node->gradient);
    }
    node->end_function();  // releases what forward saved, so that memory falls while backward goes on
    node->gradient = Tensor();
  }
  clear();
}

void Tape::clear() noexcept {
  last_parameter_ = nullptr;
  while (last_) {
    Node* node = std::exchange(last_, last_->before);
    node->end_function();
    node->~Node();
  }
  memory_.clear();
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
  const ProfileSpan span(label, {.bytes = 12.0 * static_cast<double>(contribution.count())});
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
