// Recurrent cells. The input's share of the gates is computed for all steps at once outside (one large
// product); here each step is one product with the recurrent weights and one pass over the gates. Backward
// keeps the recurrent gate gradients of all steps and makes the weight gradient in one product, instead of
// one a step.
#include <algorithm>
#include <memory>
#include <vector>

#include "autograd/gemm.h"
#include "autograd/record.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

// x: gate inputs, u: recurrent products with bias, h: previous state; out: new state. saved keeps r, z, n and
// u's third part.
FOVEA_CLONES void gru_forward(const float* x, const float* u, const float* h, std::int64_t hidden, float* out,
                              float* saved) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float r = vector_sigmoid(x[i] + u[i]);
    const float z = vector_sigmoid(x[hidden + i] + u[hidden + i]);
    const float candidate = u[2 * hidden + i];
    const float n = vector_tanh(x[2 * hidden + i] + r * candidate);
    out[i] = n + z * (h[i] - n);
    saved[i] = r;
    saved[hidden + i] = z;
    saved[2 * hidden + i] = n;
    saved[3 * hidden + i] = candidate;
  }
}

// dh: gradient of the new state. dx: of the gate inputs, du: of the recurrent products, dh_direct: dh's share
// through z·h.
FOVEA_CLONES void gru_backward(const float* saved, const float* h, const float* dh, std::int64_t hidden,
                               float* dx, float* du, float* dh_direct) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float r = saved[i], z = saved[hidden + i], n = saved[2 * hidden + i],
                candidate = saved[3 * hidden + i];
    const float dn = dh[i] * (1.0f - z) * (1.0f - n * n);
    const float dz = dh[i] * (h[i] - n) * z * (1.0f - z);
    const float dr = dn * candidate * r * (1.0f - r);
    dx[i] = du[i] = dr;
    dx[hidden + i] = du[hidden + i] = dz;
    dx[2 * hidden + i] = dn;
    du[2 * hidden + i] = dn * r;
    dh_direct[i] = dh[i] * z;
  }
}

FOVEA_CLONES void rnn_forward(const float* x, const float* u, std::int64_t hidden, float* out, float* saved) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) saved[i] = out[i] = vector_tanh(x[i] + u[i]);
}

FOVEA_CLONES void rnn_backward(const float* saved, const float* dh, std::int64_t hidden, float* dx, float* du,
                               float* dh_direct) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) {
    dx[i] = du[i] = dh[i] * (1.0f - saved[i] * saved[i]);
    dh_direct[i] = 0.0f;
  }
}

struct Sizes {
  Cell cell;
  std::int64_t batch, steps, hidden, gates, saved;
};

// What backward needs; time-major, so that a step is one contiguous block.
struct Saved {
  Tensor activations;  // [T, B, saved]
  Tensor previous;     // [T, B, H]
  std::vector<std::int64_t> lengths;
};

// Small batches are not worth waking the pool; the cut depends on shape only.
template <class Body>
void for_rows(const Sizes& s, Body&& body) {
  constexpr std::int64_t rows = 16;
  const std::int64_t units = (s.batch + rows - 1) / rows;
  const auto run = [&](std::int64_t unit, int) {
    for (std::int64_t b = unit * rows; b < std::min(s.batch, (unit + 1) * rows); ++b) body(b);
  };
  (s.batch * s.hidden >= 16384 ? default_executor() : serial_executor()).parallel_for(units, run);
}

Tensor forward(const Sizes& s, Direction direction, const Tensor& gates, const Tensor& initial,
               const Tensor& weight, const Tensor& bias, Saved& saved) {
  Tensor states(DType::f32, {s.batch, s.steps, s.hidden});
  Tensor state = initial ? initial.clone() : Tensor::zeros(DType::f32, {s.batch, s.hidden});
  Tensor recurrent(DType::f32, {s.batch, s.gates});
  saved.activations = Tensor(DType::f32, {s.steps, s.batch, s.saved});
  saved.previous = Tensor(DType::f32, {s.steps, s.batch, s.hidden});
  for (std::int64_t i = 0; i < s.steps; ++i) {
    const std::int64_t t = direction == Direction::forward ? i : s.steps - 1 - i;
    float* previous = saved.previous.data<float>() + t * s.batch * s.hidden;
    std::copy_n(state.data<float>(), s.batch * s.hidden, previous);
    for (std::int64_t b = 0; b < s.batch; ++b)
      std::copy_n(bias.data<float>(), s.gates, recurrent.data<float>() + b * s.gates);
    gemm(s.batch, s.gates, s.hidden, {previous, s.hidden}, {weight.data<float>(), s.hidden, Transpose::yes},
         1.0f, recurrent.data<float>(), s.gates);
    for_rows(s, [&](std::int64_t b) {
      float* h = state.data<float>() + b * s.hidden;
      if (t < saved.lengths[b]) {
        const float* x = gates.data<float>() + (b * s.steps + t) * s.gates;
        const float* u = recurrent.data<float>() + b * s.gates;
        float* keep = saved.activations.data<float>() + (t * s.batch + b) * s.saved;
        if (s.cell == Cell::gru) {
          gru_forward(x, u, previous + b * s.hidden, s.hidden, h, keep);
        } else {
          rnn_forward(x, u, s.hidden, h, keep);
        }
      }
      std::copy_n(h, s.hidden, states.data<float>() + (b * s.steps + t) * s.hidden);
    });
  }
  return states;
}

struct Inputs {
  Var gates, state, weight, bias;
};

void backward(const Sizes& s, Direction direction, const Inputs& in, const Saved& saved,
              const Tensor& d_states) {
  Tensor d_gates(DType::f32, {s.batch, s.steps, s.gates});
  Tensor d_recurrent(DType::f32, {s.steps, s.batch, s.gates});
  Tensor d_state = Tensor::zeros(DType::f32, {s.batch, s.hidden});
  for (std::int64_t i = s.steps - 1; i >= 0; --i) {
    const std::int64_t t = direction == Direction::forward ? i : s.steps - 1 - i;
    float* du = d_recurrent.data<float>() + t * s.batch * s.gates;
    for_rows(s, [&](std::int64_t b) {
      float* dh = d_state.data<float>() + b * s.hidden;
      const float* from_above = d_states.data<float>() + (b * s.steps + t) * s.hidden;
      for (std::int64_t j = 0; j < s.hidden; ++j) dh[j] += from_above[j];
      float* dx = d_gates.data<float>() + (b * s.steps + t) * s.gates;
      if (t >= saved.lengths[b]) {  // the step copied its state
        std::fill_n(dx, s.gates, 0.0f);
        std::fill_n(du + b * s.gates, s.gates, 0.0f);
        return;
      }
      const float* keep = saved.activations.data<float>() + (t * s.batch + b) * s.saved;
      if (s.cell == Cell::gru) {
        gru_backward(keep, saved.previous.data<float>() + (t * s.batch + b) * s.hidden, dh, s.hidden, dx,
                     du + b * s.gates, dh);
      } else {
        rnn_backward(keep, dh, s.hidden, dx, du + b * s.gates, dh);
      }
    });
    gemm(s.batch, s.hidden, s.gates, {du, s.gates}, {in.weight.value().data<float>(), s.hidden}, 1.0f,
         d_state.data<float>(), s.hidden);
  }
  if (in.weight.recorded()) {
    gemm(s.gates, s.hidden, s.steps * s.batch, {d_recurrent.data<float>(), s.gates, Transpose::yes},
         {saved.previous.data<float>(), s.hidden}, 1.0f, gradient_of(in.weight).data<float>(), s.hidden);
  }
  if (in.bias.recorded()) {
    float* db = gradient_of(in.bias).data<float>();
    const float* du = d_recurrent.data<float>();
    for (std::int64_t row = 0; row < s.steps * s.batch; ++row) {
      for (std::int64_t j = 0; j < s.gates; ++j) db[j] += du[row * s.gates + j];
    }
  }
  accumulate(in.gates, d_gates);
  accumulate(in.state, d_state);
}

Sizes check(const char* function, Cell cell, const Tensor& gates, const Tensor& state, const Tensor& weight,
            const Tensor& bias) {
  const std::int64_t count = gate_count(cell), hidden = weight.rank() == 2 ? weight.size(1) : 0;
  const auto expect = [&](bool good, const char* argument, const std::string& expected, const Tensor& got) {
    if (!good) throw InvalidArgument(function, argument, expected, to_string(got.shape()));
  };
  expect(weight.rank() == 2 && weight.size(0) == count * hidden, "weight",
         "[" + std::to_string(count) + "·H, H]", weight);
  expect(bias.rank() == 1 && bias.size(0) == count * hidden, "bias",
         "[" + std::to_string(count * hidden) + "]", bias);
  expect(gates.rank() == 3 && gates.size(2) == count * hidden, "gates",
         "[B, T, " + std::to_string(count * hidden) + "]", gates);
  if (state) {
    expect(state.rank() == 2 && state.size(0) == gates.size(0) && state.size(1) == hidden, "state",
           "[" + std::to_string(gates.size(0)) + ", " + std::to_string(hidden) + "]", state);
  }
  return {cell, gates.size(0), gates.size(1), hidden, count * hidden, (cell == Cell::gru ? 4 : 1) * hidden};
}

}  // namespace

Var cell_sequence(Cell cell, Direction direction, const Var& gates, const Var& state, const Var& weight,
                  const Var& bias, std::span<const std::int64_t> lengths) {
  const Sizes sizes =
      check("cell_sequence", cell, gates.value(), state.value(), weight.value(), bias.value());
  if (static_cast<std::int64_t>(lengths.size()) != sizes.batch) {
    throw InvalidArgument("cell_sequence", "lengths",
                          std::to_string(sizes.batch) + " lengths, one a batch entry",
                          std::to_string(lengths.size()));
  }
  const auto saved = std::make_shared<Saved>();
  saved->lengths.assign(lengths.begin(), lengths.end());
  const Tensor states =
      forward(sizes, direction, gates.value(), state.value(), weight.value(), bias.value(), *saved);
  Tape* tape = tape_of({&gates, &state, &weight, &bias});
  if (!tape) return states;
  return {states, tape->record([=, in = Inputs{gates, state, weight, bias}](const Tensor& d_states) {
            backward(sizes, direction, in, *saved, d_states);
          })};
}

Var cell_step(Cell cell, const Var& gates, const Var& state, const Var& weight, const Var& bias) {
  if (gates.shape().rank() != 2)
    throw InvalidArgument("cell_step", "gates", "[B, gates·H]", to_string(gates.shape()));
  const std::int64_t batch = gates.size(0);
  const std::vector<std::int64_t> one(static_cast<std::size_t>(batch), 1);
  const Var states = cell_sequence(cell, Direction::forward, reshape(gates, {batch, 1, gates.size(1)}), state,
                                   weight, bias, one);
  return reshape(states, {batch, states.size(2)});
}

}  // namespace fovea::autograd
