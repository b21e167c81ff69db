// Makes models of families from folders.
#pragma once

#include "fovea/files/weights.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"

namespace fovea::models {

/// The config of a folder that transformers wrote. Throws FileError where read_family finds a problem.
FamilyConfig config_of(const ModelFolder& folder);
/// The language model of a folder that transformers wrote. Throws FileError. `packed`: as in ModelFolder.
LanguageModel family_language_model(const ModelFolder& folder, std::optional<autograd::WeightType> packed);
/// The same for an encoder.
TextEncoder family_text_encoder(const ModelFolder& folder, std::optional<autograd::WeightType> packed);
/// The same for a translator.
std::unique_ptr<SequenceToSequence> family_translator(const ModelFolder& folder,
                                                      std::optional<autograd::WeightType> packed);

/// report_on of a translator of ours, or of a language model of ours with recurrences, whose weights are
/// counted already.
void report_own(const ModelFolder& folder, const files::WeightFile& weights, FolderReport& report);

}  // namespace fovea::models
