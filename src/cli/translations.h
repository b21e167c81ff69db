// Translations as `fovea translate` and `fovea summarize` print them, and the translators of other libraries
// that both run.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cli/coder.h"
#include "fovea/train/family_translator.h"

namespace fovea::cli {

/// Reads a translator that a signal stops, and prints what of its folder is not applied. Errors name
/// `command` and its options.
train::FamilyTranslator read_family_translator(const std::string& command, const std::string& folder,
                                               train::FamilyTranslatorOptions options);

/// How texts are printed.
struct TextOutput {
  std::int64_t n_best = 1;
  std::string alignment = {};  ///< "", "hard" or "soft"
  bool show = false, json = false;
};
/// Translates the lines and prints the texts of each as soon as they are there, with progress on standard
/// error.
void print_translations(const std::string& command, const train::FamilyTranslator& translator,
                        const std::vector<std::string>& lines, const TextOutput& how, std::ostream& out);
/// Prints the texts of a line: one on a line each, or one JSON object.
void print_texts(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                 std::ostream& out);
/// The alignment as `fovea score alignment` reads it, or as Marian prints soft ones; "" without weights.
std::string alignment_text(const train::Translation& translation, bool hard);

}  // namespace fovea::cli
