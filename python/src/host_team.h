// The threads that PyTorch works with, for the calls of this package.
#pragma once

namespace fovea::python {

/// Looks for the OpenMP runtime that the loaded PyTorch works with. From then on calls of this package run on
/// its threads, where both libraries use as many. Without PyTorch, or where its runtime is an unknown one,
/// nothing changes. Returns whether it was found.
///
/// PyTorch's threads spin for some milliseconds behind each of its operations and keep their cores. A call on
/// threads of our own meets them there: the gated delta rule takes 1.4 to 1.5 times as long behind a product
/// of PyTorch as alone (bench/behind_products.py).
bool join_threads_of_torch();

/// Calls of fewer multiply-adds run on the calling thread alone. On PyTorch's threads that is three quarters
/// of what it is on a pool, because they do not sleep between operations that come one behind the other.
/// Decoding of 256 keys by 8 heads of 64 takes 0.6 of the time on two of them. With 128 keys it takes as long
/// as on one, so such a call stays alone (bench/behind_products.py).
double least_shared_work();

/// Makes `threads` the number of threads of later calls. Throws Error if that many cannot be started.
void set_num_threads(int threads);

}  // namespace fovea::python
