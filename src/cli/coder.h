// The coder of a model's folder (train::Coder), for commands: they also say what of the folder is not
// applied.
#pragma once

#include <cstdint>
#include <memory>

#include "cli/ids.h"
#include "fovea/models/model_folder.h"
#include "fovea/train/coder.h"

namespace fovea::cli {

using train::Coder;

/// train::read_coder, and warn_of for a folder of another library.
std::unique_ptr<Coder> read_coder(const models::ModelFolder& folder, std::int64_t vocabulary);

/// Prints what of generation_config.json is not applied.
void warn_of(const models::GenerationDefaults& defaults);

}  // namespace fovea::cli
