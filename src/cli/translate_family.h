// `fovea translate` with a translator of another library: T5, BART, Marian.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "fovea/models/decoding.h"
#include "fovea/models/model_folder.h"
#include "fovea/train/translator.h"

namespace fovea::cli {

/// Whether the folder holds such a translator and its tokenizer: tokenizer.json, or Marian's files.
bool is_family_translator(const std::string& folder);
/// The n-best translations of each line, best first; an empty line has one that is empty. Weights are over
/// the words between blanks, and the last column has what the model gives to special ids. `options` says all
/// but the first and the last id, which the folder says. Throws FileError if it does not.
std::vector<std::vector<train::Translation>> translate_family(const std::string& folder,
                                                              const std::vector<std::string>& lines,
                                                              models::DecodeOptions options,
                                                              autograd::WeightType weights);

}  // namespace fovea::cli
