// Pages of a model's attention, shared by inspect and demo.
#pragma once

#include <string>

#include "fovea/inspect/data.h"
#include "fovea/train/translator.h"

namespace fovea::cli {

/// Every layer and head for `source` and `target` (teacher-forced).
inspect::InspectPage page_of(train::Translator& translator, const std::string& title,
                             const std::string& source, const std::string& target);

}  // namespace fovea::cli
