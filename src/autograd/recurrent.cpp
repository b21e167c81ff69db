// Recurrent cells. The caller computes the input's part of the gates for all steps at once (one large
// product). Here each step is one product with the recurrent weights and one pass over the gates. Backward
// keeps the recurrent gate gradients of all steps and computes the weight gradient in one product, instead of
// one for each step.
#include <algorithm>
#include <memory>
#include <vector>

#include "autograd/gemm.h"
#include "autograd/packed_products.h"
#include "autograd/record.h"
#include "autograd/row_lengths.h"
#include "autograd/rows.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

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

// h and c: previous state; out_h and out_c: new state. saved keeps i, f, g, o and tanh(c').
FOVEA_CLONES void lstm_forward(const float* x, const float* u, const float* c, std::int64_t hidden,
                               float* out_h, float* out_c, float* saved) {
#pragma omp simd
  for (std::int64_t k = 0; k < hidden; ++k) {
    const float i = vector_sigmoid(x[k] + u[k]);
    const float f = vector_sigmoid(x[hidden + k] + u[hidden + k]);
    const float g = vector_tanh(x[2 * hidden + k] + u[2 * hidden + k]);
    const float o = vector_sigmoid(x[3 * hidden + k] + u[3 * hidden + k]);
    const float cell = f * c[k] + i * g, bounded = vector_tanh(cell);
    out_c[k] = cell;
    out_h[k] = o * bounded;
    saved[k] = i;
    saved[hidden + k] = f;
    saved[2 * hidden + k] = g;
    saved[3 * hidden + k] = o;
    saved[4 * hidden + k] = bounded;
  }
}

// dh, dc: gradients of the new state. They become those of the previous state, without dh's part through the
// recurrent product. The gates' input and recurrent parts are summed, so their gradients are equal.
FOVEA_CLONES void lstm_backward(const float* saved, const float* c, std::int64_t hidden, float* dx, float* du,
                                float* dh, float* dc) {
#pragma omp simd
  for (std::int64_t k = 0; k < hidden; ++k) {
    const float i = saved[k], f = saved[hidden + k], g = saved[2 * hidden + k], o = saved[3 * hidden + k],
                bounded = saved[4 * hidden + k];
    const float d_cell = dc[k] + dh[k] * o * (1.0f - bounded * bounded);
    dx[k] = du[k] = d_cell * g * i * (1.0f - i);
    dx[hidden + k] = du[hidden + k] = d_cell * c[k] * f * (1.0f - f);
    dx[2 * hidden + k] = du[2 * hidden + k] = d_cell * i * (1.0f - g * g);
    dx[3 * hidden + k] = du[3 * hidden + k] = dh[k] * bounded * o * (1.0f - o);
    dc[k] = d_cell * f;
    dh[k] = 0.0f;
  }
}

// `state` is the width of a state, whose first `hidden` elements are h.
struct Sizes {
  Cell cell;
  std::int64_t batch, steps, hidden, state, gates, saved;
  Operands operands = Operands::f32;
};

constexpr int saved_count(Cell cell) {
  switch (cell) {
    case Cell::gru:
      return 4;
    case Cell::lstm:
      return 5;
    case Cell::rnn:
      break;
  }
  return 1;
}

// What backward needs; time-major, so that a step is one contiguous block.
struct Saved {
  Tensor activations;  // [T, B, saved]
  Tensor previous;     // [T, B, S*H]
  KeptVector<std::int64_t> lengths;
};

// For small batches starting the threads costs more than it saves. The choice depends on the shape only.
template <class Body>
void for_rows(const Sizes& s, Body&& body) {
  constexpr std::int64_t rows = 16;
  const std::int64_t units = (s.batch + rows - 1) / rows;
  const auto run = [&](std::int64_t unit, int) {
    for (std::int64_t b = unit * rows; b < std::min(s.batch, (unit + 1) * rows); ++b) body(b);
  };
  (s.batch * s.hidden >= 16384 ? default_executor() : serial_executor()).parallel_for(units, run);
}

void forward_row(const Sizes& s, const float* x, const float* u, const float* previous, float* state,
                 float* keep) {
  switch (s.cell) {
    case Cell::rnn:
      return rnn_forward(x, u, s.hidden, state, keep);
    case Cell::gru:
      return gru_forward(x, u, previous, s.hidden, state, keep);
    case Cell::lstm:
      return lstm_forward(x, u, previous + s.hidden, s.hidden, state, state + s.hidden, keep);
  }
}

// d_state: the gradient of the new state; it becomes that of the previous state, without the part through du.
void backward_row(const Sizes& s, const float* keep, const float* previous, float* dx, float* du,
                  float* d_state) {
  switch (s.cell) {
    case Cell::rnn:
      return rnn_backward(keep, d_state, s.hidden, dx, du, d_state);
    case Cell::gru:
      return gru_backward(keep, previous, d_state, s.hidden, dx, du, d_state);
    case Cell::lstm:
      return lstm_backward(keep, previous + s.hidden, s.hidden, dx, du, d_state, d_state + s.hidden);
  }
}

// The part of the gates that comes from the previous states [B, S*H].
void multiply_states(const Sizes& s, const float* states, const Var& weight, const Tensor& bias,
                     Tensor& gates) {
  if (weight.packed()) {
    packed_products({.x = states,
                     .weight = weight.packed(),
                     .bias = bias.data<float>(),
                     .y = gates.data<float>(),
                     .rows = s.batch,
                     .x_stride = s.state},
                    default_executor());
    return;
  }
  gemm(s.batch, s.gates, s.hidden, {states, s.state},
       {weight.value().data<float>(), s.hidden, Transpose::yes}, RowBias{bias.data<float>()},
       gates.data<float>(), s.gates, s.operands);
}

Tensor forward(const Sizes& s, Direction direction, const Tensor& gates, const Tensor& initial,
               const Var& weight, const Tensor& bias, Saved& saved) {
  Tensor states(DType::f32, {s.batch, s.steps, s.state});
  Tensor recurrent(DType::f32, {s.batch, s.gates}), last(DType::f32, {s.batch, s.state});
  saved.activations = Tensor(DType::f32, {s.steps, s.batch, s.saved});
  saved.previous = Tensor(DType::f32, {s.steps, s.batch, s.state});
  const auto previous_of = [&](std::int64_t i) {
    const std::int64_t t = direction == Direction::forward ? i : s.steps - 1 - i;
    return i < s.steps ? saved.previous.data<float>() + t * s.batch * s.state : last.data<float>();
  };
  if (initial)
    std::copy_n(initial.data<float>(), s.batch * s.state, previous_of(0));
  else
    std::fill_n(previous_of(0), s.batch * s.state, 0.0f);
  for (std::int64_t i = 0; i < s.steps; ++i) {
    const std::int64_t t = direction == Direction::forward ? i : s.steps - 1 - i;
    const float* previous = previous_of(i);
    float* next = previous_of(i + 1);  // a step writes where the next one reads
    multiply_states(s, previous, weight, bias, recurrent);
    for_rows(s, [&](std::int64_t b) {
      float* row = next + b * s.state;
      if (t < saved.lengths[b]) {
        forward_row(s, gates.data<float>() + (b * s.steps + t) * s.gates,
                    recurrent.data<float>() + b * s.gates, previous + b * s.state, row,
                    saved.activations.data<float>() + (t * s.batch + b) * s.saved);
      } else {
        std::copy_n(previous + b * s.state, s.state, row);
      }
      std::copy_n(row, s.state, states.data<float>() + (b * s.steps + t) * s.state);
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
  Tensor d_state = Tensor::zeros(DType::f32, {s.batch, s.state});
  for (std::int64_t i = s.steps - 1; i >= 0; --i) {
    const std::int64_t t = direction == Direction::forward ? i : s.steps - 1 - i;
    float* du = d_recurrent.data<float>() + t * s.batch * s.gates;
    for_rows(s, [&](std::int64_t b) {
      float* d_row = d_state.data<float>() + b * s.state;
      const float* from_above = d_states.data<float>() + (b * s.steps + t) * s.state;
      add_row(from_above, s.state, d_row);
      float* dx = d_gates.data<float>() + (b * s.steps + t) * s.gates;
      if (t >= saved.lengths[b]) {  // the step copied its state
        std::fill_n(dx, s.gates, 0.0f);
        std::fill_n(du + b * s.gates, s.gates, 0.0f);
        return;
      }
      backward_row(s, saved.activations.data<float>() + (t * s.batch + b) * s.saved,
                   saved.previous.data<float>() + (t * s.batch + b) * s.state, dx, du + b * s.gates, d_row);
    });
    gemm(s.batch, s.hidden, s.gates, {du, s.gates}, {in.weight.value().data<float>(), s.hidden}, 1.0f,
         d_state.data<float>(), s.state, s.operands);
  }
  if (in.weight.recorded()) {
    gemm(s.gates, s.hidden, s.steps * s.batch, {d_recurrent.data<float>(), s.gates, Transpose::yes},
         {saved.previous.data<float>(), s.state}, 1.0f, gradient_of(in.weight).data<float>(), s.hidden,
         s.operands);
  }
  if (in.bias.recorded()) {
    add_columns(d_recurrent.data<float>(), s.steps * s.batch, s.gates, gradient_of(in.bias).data<float>());
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
  const std::int64_t width = state_count(cell) * hidden;
  if (state) {
    expect(state.rank() == 2 && state.size(0) == gates.size(0) && state.size(1) == width, "state",
           "[" + std::to_string(gates.size(0)) + ", " + std::to_string(width) + "]", state);
  }
  return {cell, gates.size(0), gates.size(1), hidden, width, count * hidden, saved_count(cell) * hidden};
}

}  // namespace

Var cell_sequence(Cell cell, Direction direction, const Var& gates, const Var& state, const Var& weight,
                  const Var& bias, std::span<const std::int64_t> lengths) {
  static constexpr ProfileLabel label{"cell sequence", ProfilePart::recurrence};
  const ProfileSpan span(label, moved({&gates, &state}));
  Sizes sizes = check("cell_sequence", cell, gates.value(), state.value(), weight.value(), bias.value());
  if (static_cast<std::int64_t>(lengths.size()) != sizes.batch) {
    throw InvalidArgument("cell_sequence", "lengths",
                          std::to_string(sizes.batch) + " lengths, one for each batch entry",
                          std::to_string(lengths.size()));
  }
  const auto saved = make_kept<Saved>();
  saved->lengths = checked_row_lengths("cell_sequence", lengths, {.batch = sizes.batch, .most = sizes.steps});
  Tape* tape = tape_of({&gates, &state, &weight, &bias});
  sizes.operands = operands_of(tape);
  const Tensor states = forward(sizes, direction, gates.value(), state.value(), weight, bias.value(), *saved);
  if (!tape) return states;
  return {states, tape->record([=, in = Inputs{gates, state, weight, bias}](const Tensor& d_states) {
            backward(sizes, direction, in, *saved, d_states);
          })};
}

Var cell_step(Cell cell, const Var& gates, const Var& state, const Var& weight, const Var& bias) {
  static constexpr ProfileLabel label{"cell step", ProfilePart::recurrence};
  const ProfileSpan span(label);
  if (gates.shape().rank() != 2)
    throw InvalidArgument("cell_step", "gates", "[B, gates·H]", to_string(gates.shape()));
  const std::int64_t batch = gates.size(0);
  const KeptVector<std::int64_t> one(static_cast<std::size_t>(batch), 1);
  const Var states = cell_sequence(cell, Direction::forward, reshape(gates, {batch, 1, gates.size(1)}), state,
                                   weight, bias, one);
  return reshape(states, {batch, states.size(2)});
}

Var cell_output(Cell cell, const Var& states) {
  static constexpr ProfileLabel label{"cell output", ProfilePart::recurrence};
  const ProfileSpan span(label);
  const int parts = state_count(cell);
  if (parts == 1) return states;
  const std::int64_t width = states.shape().rank() > 0 ? states.size(-1) : 0;
  if (width == 0 || width % parts != 0)
    throw InvalidArgument("cell_output", "states", "[..., " + std::to_string(parts) + "·H]",
                          to_string(states.shape()));
  return slice(states, states.shape().rank() - 1, 0, width / parts);
}

}  // namespace fovea::autograd
