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

/// Makes `threads` the number of threads of later calls. Throws Error if that many cannot be started.
void set_num_threads(int threads);

}  // namespace fovea::python
