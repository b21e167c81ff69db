// The parts of whole-row normalisers that are scalar by nature, or too rare to be worth vectors: plain code,
// called once for each row. The vector code of the normalisers is in flash/normalize-inl.h.
#pragma once

#include <cstdint>

#include "fovea/attention/site.h"

namespace fovea::kernels {

/// to[j - first.key] = the Gumbel noise of the site (attention/sample.h), for keys [first.key, first.key +
/// count).
template <class T>
void gumbel_row(std::uint64_t seed, const Site& first, std::int64_t count, T* to);

/// Turns the potentials of z_j = 1 into p(z_j = 1), in place, for a linear chain of variables z_j in {0, 1}.
/// A potential of -inf means that the key is no part of the chain. Returns ln Z. `transitions`: [2, 2], the
/// potentials of (z_j, z_j+1). `spare` has room for count.
template <class T>
T chain_marginals(const T* transitions, std::int64_t count, T* potentials, T* spare);

/// Turns the derivative by the marginals into the derivative by the potentials, in place; adds to
/// d_transitions [2, 2] unless null. `spare` has room for 3 · count.
template <class T>
void chain_gradient(const T* transitions, std::int64_t count, const T* potentials, T* d_marginals,
                    T* d_transitions, T* spare);

}  // namespace fovea::kernels
