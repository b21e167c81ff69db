// From a message and its translation to pairs of clean paragraphs; for this directory only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/corpus.h"

namespace fovea::text::gettext {

/// Paragraphs: a blank line or an indented line begins a new one. White space is collapsed to single blanks.
std::vector<std::string> paragraphs(std::string_view text);
/// Removes accelerator marks and the context prefix from a pair.
void remove_marks(SentencePair& pair);
/// Whether at least half of the characters other than blanks are letters.
bool is_mostly_letters(std::string_view text);
bool has_control_characters(std::string_view text);

}  // namespace fovea::text::gettext
