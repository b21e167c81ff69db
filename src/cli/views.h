// Pages of a model's attention, shared by inspect and demo.
#pragma once

#include <string>

#include "fovea/inspect/data.h"
#include "fovea/models/model_folder.h"
#include "fovea/train/translator.h"

namespace fovea::cli {

/// Every layer and head for `source` and `target` (teacher-forced).
inspect::InspectPage page_of(train::Translator& translator, const std::string& title,
                             const std::string& source, const std::string& target);

/// Whether a folder has a model that continues texts, and does not translate them.
bool is_language_model(const models::ModelFolder& folder);
/// Every layer and head of a language model that reads `source`. A recurrence shows the shares of its
/// quadratic form (autograd::recurrence_weights). The facts say what each layer keeps of the text.
inspect::InspectPage language_page(const models::ModelFolder& folder, const std::string& title,
                                   const std::string& source);

}  // namespace fovea::cli
