// `fovea generate --prompt-ids`: ids in, ids out, without a tokenizer.
#pragma once

#include <iosfwd>
#include <string>

#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"

namespace fovea::cli {

struct GenerateIds {
  std::string prompt;
  models::SampleOptions sample;
  std::int64_t limit_bytes = 0;
  bool json = false;
};

/// Writes until options.sample.length ids are written or one is a stop id of the folder, which is the last.
void generate_ids(const GenerateIds& options, const models::ModelFolder& folder, std::ostream& out);

}  // namespace fovea::cli
