#include "cli/coder.h"

#include <fmt/format.h>

#include <cstdio>

#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {

void warn_of(const models::GenerationDefaults& defaults) {
  for (const std::string& key : defaults.not_applied) fmt::print(stderr, "fovea: {} is not applied\n", key);
}

std::unique_ptr<Coder> read_coder(const models::ModelFolder& folder, std::int64_t vocabulary) {
  if (text::has_folder_tokenizer(folder.path()) || text::MarianTokenizer::is_in(folder.path()))
    warn_of(folder.generation());
  return train::read_coder(folder, vocabulary);
}

}  // namespace fovea::cli
