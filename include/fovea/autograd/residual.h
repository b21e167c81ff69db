// The seams of a Transformer's blocks. What a part has computed is dropped out and added to the rows that it
// read, and the sum is normalised for the next part. All of it is one sweep over the rows.
#pragma once

#include <cstdint>

#include "fovea/autograd/var.h"

namespace fovea::autograd {

/// The arguments of `dropout`. A rate of 1/512 or less is rounded to 0: nothing is dropped.
struct DropoutOf {
  float rate = 0.0f;
  std::uint64_t seed = 0, stream = 0;
};

/// The arguments of `layer_norm` or `rms_norm`.
struct RowNorm {
  enum class Kind : std::uint8_t { layer, rms };
  Kind kind = Kind::layer;
  Var gamma, beta = {};  ///< [D]; no beta for RMS norm
  float epsilon = 1e-5f, gamma_offset = 0.0f;
};

/// x + dropout(y) for x and y of one shape, with the bits of `add` and `dropout`, forward and backward. The
/// value of y is not kept for backward.
Var residual(const Var& x, const Var& y, const DropoutOf& dropout = {});

/// Whether a caller of residual_norm reads the sum, as blocks that begin with a norm do.
enum class ResidualSum : std::uint8_t { read, not_read };
/// In which types a caller of residual_norm reads the normalised rows. Products with weights of bf16 round
/// what they multiply, so rows that nothing else reads need not be written in f32.
enum class NormedRows : std::uint8_t { f32, bf16, both };
struct ResidualReads {
  ResidualSum sum = ResidualSum::read;
  NormedRows normed = NormedRows::f32;
};
struct ResidualNorm {
  Var sum;           ///< x + dropout(y); empty if it is not read
  Var normed;        ///< the norm of its rows; empty for NormedRows::bf16
  Var rounded = {};  ///< the same in bf16, as products with weights of bf16 round; empty for NormedRows::f32
};
/// Both for x and y [..., D], with the bits of `add`, `dropout` and the norm one by one, forward and
/// backward. Source: Vaswani et al. 2017, section 5.4, and Xiong et al. 2020 (arXiv 2002.04745) for norms in
/// front of a part. Backward keeps the sum and two numbers of each row. The separate operations keep y and
/// dropout(y) too. Throws InvalidArgument for other shapes, a rate outside [0, 1), or rows of bf16 where
/// something is recorded: bf16 has no gradients.
ResidualNorm residual_norm(const Var& x, const Var& y, const RowNorm& norm, const DropoutOf& dropout = {},
                           const ResidualReads& reads = {});

}  // namespace fovea::autograd
