#pragma once

#include <CLI/CLI.hpp>

namespace fovea::cli {

/// Adds `fovea score text` to `fovea score`.
void register_score_text(CLI::App& score);

}  // namespace fovea::cli
