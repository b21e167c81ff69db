// Parts of whole-row normalisers that are scalar by nature, or shared by no loop worth a vector: plain code,
// called a row at a time.
#pragma once

#include <cstdint>

#include "fovea/attention/mask.h"

namespace fovea::kernels {

/// to[j - first.key] = Gumbel noise of the site (attention/sample.h), for keys [first.key, first.key +
/// count).
template <class T>
void gumbel_row(std::uint64_t seed, const Site& first, std::int64_t count, T* to);

/// potentials of z_j = 1 → p(z_j = 1), in place; -inf stands for a key that is no part of the chain. Returns
/// ln Z. `transitions`: [2, 2] of (z_j, z_j+1). `spare` has room for count.
template <class T>
T chain_marginals(const T* transitions, std::int64_t count, T* potentials, T* spare);

/// d_marginals → derivative by the potentials, in place; adds to d_transitions [2, 2] unless null. `spare`
/// has room for 3 · count.
template <class T>
void chain_gradient(const T* transitions, std::int64_t count, const T* potentials, T* d_marginals,
                    T* d_transitions, T* spare);

}  // namespace fovea::kernels
