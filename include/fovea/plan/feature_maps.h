// Feature maps that change the size of queries and keys, or that depend on positions. They run before recur,
// whose spec then has IdentityFeatures, a scale of 1 and KeySum. The key_dim of its shape is the number of
// features. Tensors are [batch, heads, len, dim]; innermost axes are contiguous.
#pragma once

#include <cstdint>

#include "fovea/core/tensor.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// Positive random features of the exponential of a scaled dot product, FAVOR+ (Choromanski et al. 2020,
/// arXiv 2009.14794, lemma 1): with x' = x / dim^(1/4) and the rows ω_j of a projection,
///
///   φ_j(x) = exp(ω_j·x' - |x'|²/2 - shift) / sqrt(num_features)
///
/// The mean of φ(q)·φ(k) over projections is exp(q·k / sqrt(dim) - 2 shift). The sum normaliser removes the
/// shift, which only keeps numbers in range. It is a constant, because a state outlives a call.
struct Favor {
  double shift = 0.0;
};

/// f64 [num_features, dim]: rows of normal numbers, made orthogonal in groups of `dim` with their lengths
/// kept (section 2.4 of the paper). A seed gives the same numbers everywhere. Throws InvalidArgument for
/// sizes below 1.
Tensor favor_projection(std::int64_t num_features, std::int64_t dim, std::uint64_t seed);

/// features [batch, heads, len, num_features] ← φ(x), in the dtype of x. `projection` is [num_features, dim],
/// contiguous, f64. Throws InvalidArgument for views that do not fit or that share memory.
void favor_features(const Favor& map, const ConstTensorView& x, const ConstTensorView& projection,
                    const TensorView& features, const CallResources& resources = {});
/// d_x ← the derivative of φ at x, applied to d_features. Errors as above.
void favor_features_backward(const Favor& map, const ConstTensorView& x, const ConstTensorView& projection,
                             const ConstTensorView& d_features, const TensorView& d_x,
                             const CallResources& resources = {});

/// cosFormer's features (Qin et al. 2022, arXiv 2202.08791): of the token at position i, max(x, 0) times
/// cos(πi / 2M), and behind them max(x, 0) times sin(πi / 2M). So the product of a query's and a key's is
/// weighted by the cosine of their distance.
struct CosReweight {
  std::int64_t max_len = 0;         ///< M: positions are below it
  std::int64_t first_position = 0;  ///< of row 0, such as the tokens before this call
};

/// features [batch, heads, len, 2 dim] ← the features of x. Throws InvalidArgument for views that do not fit
/// or that share memory, and for positions that reach max_len.
void cos_features(const CosReweight& map, const ConstTensorView& x, const TensorView& features,
                  const CallResources& resources = {});
/// d_x ← the derivative of the features at x, applied to d_features. It is 0 where x is at most 0.
void cos_features_backward(const CosReweight& map, const ConstTensorView& x,
                           const ConstTensorView& d_features, const TensorView& d_x,
                           const CallResources& resources = {});

}  // namespace fovea
