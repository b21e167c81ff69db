// Validations as JSON, for the checkpoint and for training.json.
#pragma once

#include <nlohmann/json.hpp>

#include "fovea/train/trainer.h"

namespace fovea::train {

/// Values that are not finite become text: JSON has no numbers for them.
nlohmann::json to_json(const Validation& validation);

}  // namespace fovea::train
