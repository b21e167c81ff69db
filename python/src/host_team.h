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

/// Calls of fewer multiply-adds run on the calling thread alone. On PyTorch's threads that is half of what it
/// is on a pool, because they do not sleep between operations that come one behind the other. Decoding of 128
/// keys by 8 heads of 64 in f32 takes 0.87 of one thread's time on two of a Zen 5 (python -m fovea.bench).
/// With 256 keys two threads take 0.6 of one's time on a Zen 4 (bench/behind_products.py).
double least_shared_work();

/// Makes `threads` the number of threads of later calls. Throws Error if that many cannot be started.
void set_num_threads(int threads);

}  // namespace fovea::python
