#include "cli/translate_family.h"

#include <filesystem>

#include "cli/coder.h"
#include "fovea/core/error.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {

bool is_family_translator(const std::string& folder) {
  std::error_code error;
  const bool has_tokenizer = text::has_json_tokenizer(folder) || text::MarianTokenizer::is_in(folder);
  if (!has_tokenizer || !std::filesystem::exists(models::config_path(folder), error)) return false;
  return models::family_kind(models::ModelFolder(folder).config()) == models::FamilyKind::translator;
}

std::vector<std::vector<std::string>> translate_family(const std::string& path,
                                                       const std::vector<std::string>& lines,
                                                       models::DecodeOptions options) {
  const models::ModelFolder folder(path);
  const models::GenerationDefaults defaults = folder.generation();
  if (!defaults.start_id || defaults.stop_ids.size() != 1)
    throw FileError(path, -1,
                    "does not say which id the decoder reads first, decoder_start_token_id, and which one id "
                    "ends a text, eos_token_id");
  options.bos = *defaults.start_id;
  options.eos = defaults.stop_ids.front();
  options.never.emplace();  // BART begins with the id that ends a text
  const auto model = folder.sequence_to_sequence();
  const std::unique_ptr<Coder> coder = read_coder(folder, model->vocabulary());
  std::vector<std::vector<std::string>> translations;
  for (const std::string& line : lines) {
    Ids source = coder->begun(line);
    // The search puts it there again.
    if (!source.empty() && source.back() == options.eos) source.pop_back();
    std::vector<std::string>& of_line = translations.emplace_back();
    if (line.empty() || source.empty()) {
      of_line.emplace_back();
      continue;
    }
    const auto decoded = models::decode(*model, {source}, options);
    for (const models::Hypothesis& hypothesis : decoded.front())
      of_line.push_back(coder->text(hypothesis.ids));
  }
  return translations;
}

}  // namespace fovea::cli
