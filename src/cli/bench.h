// What `fovea bench` gathers: each file registers its own benchmark.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>

#include "fovea/core/tensor.h"

namespace fovea::cli {

/// Uniform in [-1, 1), f32.
Tensor random_operand(Shape shape, std::uint64_t seed);

/// `wall` as it passes; `cpu` is what the process used, which a busy machine changes less.
enum class Clock { wall, cpu };

/// The best of `repeat` runs.
double best_seconds(std::int64_t repeat, const std::function<void()>& body, Clock clock = Clock::wall);

void register_bench_attention(CLI::App& bench);
void register_bench_kernels(CLI::App& bench);
void register_bench_mods(CLI::App& bench);
void register_bench_packed(CLI::App& bench);

}  // namespace fovea::cli
