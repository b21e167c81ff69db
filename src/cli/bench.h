// The benchmarks of `fovea bench`: each file registers its own subcommand, and src/bench measures.
#pragma once

#include "cli/options.h"

namespace fovea::cli {

void register_bench_attention(Command bench);
void register_bench_kernels(Command bench);
void register_bench_mods(Command bench);
void register_bench_packed(Command bench);
void register_bench_cached(Command bench);
void register_bench_recurrence(Command bench);
void register_bench_train(Command command_group);
void register_bench_products(Command bench);
void register_bench_inference(Command command_group);
void register_bench_model(Command command_group);

}  // namespace fovea::cli
