// Makes models of families from folders.
#pragma once

#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"

namespace fovea::models {

/// The language model of a folder that transformers wrote. Throws FileError.
LanguageModel family_language_model(const ModelFolder& folder);
/// The same for an encoder.
TextEncoder family_text_encoder(const ModelFolder& folder);
/// The same for a translator.
std::unique_ptr<SequenceToSequence> family_translator(const ModelFolder& folder);

}  // namespace fovea::models
