// Each command registers itself: its options, its help, and a callback. No arithmetic here.
#pragma once

#include <CLI/CLI.hpp>

namespace fovea::cli {

void register_train(CLI::App& app);
void register_translate(CLI::App& app);
void register_score(CLI::App& app);
void register_corpus(CLI::App& app);
void register_inspect(CLI::App& app);
void register_attend(CLI::App& app);
void register_bench(CLI::App& app);
void register_demo(CLI::App& app);

/// Ctrl-C and SIGTERM set this; a second one ends the process at once.
bool stop_requested() noexcept;
void catch_signals() noexcept;

}  // namespace fovea::cli
