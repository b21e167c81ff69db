// The threads that PyTorch works with, for the calls of this package.
#pragma once

namespace fovea::python {

/// Looks for the OpenMP runtime that the loaded PyTorch works with. From then on calls of this package run on
/// its threads, where both libraries use as many. Without PyTorch, or where its runtime is an unknown one,
/// nothing changes. Returns whether it was found.
///
/// PyTorch's threads spin for some milliseconds behind each of its operations and keep their cores. A call on
/// threads of our own met them there: on two cores the gated delta rule took 14.2 ms behind a product of
/// PyTorch, and 6.7 ms alone.
bool join_threads_of_torch();

/// Calls of fewer multiply-adds run on the calling thread alone. On PyTorch's threads that is three quarters
/// of what it is on a pool, because they do not sleep between operations that come one behind the other.
/// Decoding of 256 keys by 8 heads of 64 took 24.5 us on two of them and 30.0 on one. With 128 keys it took
/// as long on both.
double least_shared_work();

/// Makes `threads` the number of threads of later calls. Throws Error if that many cannot be started.
void set_num_threads(int threads);

}  // namespace fovea::python
