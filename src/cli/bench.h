// What `fovea bench` gathers: each file registers its own benchmark, which src/bench measures.
#pragma once

#include <CLI/CLI.hpp>

namespace fovea::cli {

void register_bench_attention(CLI::App& bench);
void register_bench_kernels(CLI::App& bench);
void register_bench_mods(CLI::App& bench);
void register_bench_packed(CLI::App& bench);

}  // namespace fovea::cli
