// Validations as JSON, for the checkpoint and for training.json.
#pragma once

#include <nlohmann/json.hpp>

#include "fovea/train/trainer.h"

namespace fovea::train {

/// Values that are not finite, which JSON does not have, as text.
nlohmann::json to_json(const Validation& validation);

}  // namespace fovea::train
