// Ops on one thread and on several: their results must have the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "autograd/drawn.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {

using Op = std::function<Var(const std::vector<Var>&)>;

/// The value of an op, and the gradients of its inputs for a drawn gradient of the value.
inline std::vector<Tensor> run_op(const std::vector<Tensor>& inputs, const Op& op) {
  Tape tape;
  std::vector<Parameter> parameters(inputs.size());
  std::vector<Var> vars;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    parameters[i].value = inputs[i];
    vars.push_back(tape.use(parameters[i]));
  }
  const Var value = op(vars);
  std::vector<Tensor> results{value.value()};
  tape.backward(value, drawn(value.shape(), 99));
  for (const Parameter& parameter : parameters) results.push_back(parameter.gradient);
  return results;
}

/// The results on one thread; those of two and five threads have the same bits.
inline std::vector<Tensor> run_by_threads(const std::vector<Tensor>& inputs, const Op& op) {
  const auto on = [&](Executor& executor) {
    set_default_executor(&executor);
    std::vector<Tensor> results = run_op(inputs, op);
    set_default_executor(nullptr);
    return results;
  };
  std::vector<Tensor> alone = on(serial_executor());
  for (const int threads : {2, 5}) {
    const auto pool = make_thread_pool(threads);
    const std::vector<Tensor> other = on(*pool);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(std::memcmp(alone[i].raw(), other[i].raw(), alone[i].bytes()), 0)
          << "result " << i << " with " << threads << " threads";
  }
  return alone;
}

inline void expect_elements(const Tensor& got, const std::function<float(std::int64_t)>& expected) {
  for (std::int64_t i = 0; i < got.count(); ++i)
    ASSERT_EQ(got.data<float>()[i], expected(i)) << "element " << i << " of " << to_string(got.shape());
}

}  // namespace fovea::autograd
