// Translations as `fovea translate` and `fovea summarize` print them, and the translators of other libraries
// that both run.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/coder.h"
#include "cli/text_windows.h"
#include "fovea/train/family_translator.h"

namespace fovea::cli {

/// Reads a translator that a signal stops, and prints what of its folder is not applied. Errors name
/// `command` and its options.
train::FamilyTranslator read_family_translator(const std::string& command, const std::string& folder,
                                               train::FamilyTranslatorOptions options);

/// Throws InvalidArgument for a length penalty whose scores nothing reads: one beam has one text.
[[noreturn]] void refuse_length_penalty(const std::string& command, const char* option);

/// How texts are printed.
struct TextOutput {
  std::int64_t n_best = 1;
  std::string alignment = {};  ///< "", "hard" or "soft"
  bool show = false, json = false;
};
/// Translates a window of lines, as FamilyTranslator::translate and Translator::translate do.
using TranslateWindow =
    std::function<void(const std::vector<std::string>& lines, const train::TranslationDone& done)>;
/// Translates the lines and prints the texts of each as soon as they are there, with progress on standard
/// error. A line that fails is named there and answered by an empty line or a JSON object with "error".
/// Throws LinesFailed behind them if one failed, and Stopped after a signal.
void print_translations(const std::string& command, TextWindows& lines, const TranslateWindow& translate,
                        const TextOutput& how, Output& output);
/// Prints the texts of a line: one on a line each, or one JSON object.
void print_texts(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                 std::ostream& out);
/// The alignment as `fovea score alignment` reads it, or as Marian prints soft ones; "" without weights.
std::string alignment_text(const train::Translation& translation, bool hard);

}  // namespace fovea::cli
