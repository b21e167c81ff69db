// The benchmarks of `fovea bench`: each file registers its own subcommand, and src/bench measures.
#pragma once

#include <CLI/CLI.hpp>

namespace fovea::cli {

void register_bench_attention(CLI::App& bench);
void register_bench_kernels(CLI::App& bench);
void register_bench_mods(CLI::App& bench);
void register_bench_packed(CLI::App& bench);
void register_bench_cached(CLI::App& bench);
void register_bench_recurrence(CLI::App& bench);
void register_bench_train(CLI::App& command_group);
void register_bench_products(CLI::App& bench);
void register_bench_inference(CLI::App& command_group);
void register_bench_model(CLI::App& command_group);

}  // namespace fovea::cli
