// Rotary positions as an op: the engine's rotation on strided views of [B, L, heads * dim].
#include "autograd/record.h"
#include "fovea/autograd/ops.h"

namespace fovea::autograd {
namespace {

TensorView heads_of(const Tensor& tensor, std::int64_t heads) {
  const std::int64_t length = tensor.size(1), width = tensor.size(2), dim = width / heads;
  const std::int64_t strides[] = {length * width, dim, width, 1};
  return {tensor.raw(), tensor.dtype(), Shape{tensor.size(0), heads, length, dim}, strides};
}

}  // namespace

Var rotate(const Var& x, const RopeTable& table, std::int64_t num_heads, std::int64_t first) {
  if (x.shape().rank() != 3 || num_heads < 1 || x.size(2) % num_heads != 0) {
    throw InvalidArgument("rotate", "x", "[B, L, a multiple of " + std::to_string(num_heads) + " heads]",
                          to_string(x.shape()));
  }
  Tensor out(DType::f32, x.shape());
  rope_forward(table, heads_of(x.value(), num_heads), first, heads_of(out, num_heads));
  return result_of(tape_of({&x}), out, [=](const Tensor& d_out) {
    Tensor d_x(DType::f32, d_out.shape());
    rope_backward(table, heads_of(d_out, num_heads), first, heads_of(d_x, num_heads));
    accumulate(x, d_x);
  });
}

}  // namespace fovea::autograd
