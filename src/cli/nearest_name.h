// The name that a misspelt word was perhaps meant for.
#pragma once

#include <string>
#include <vector>

namespace fovea::cli {

/// One of the names of options, such as "--model", and commands, or an empty text. A name that begins with the
/// word comes first, then the name at the smallest edit distance, if that is small. The last to be tried is a
/// name that begins with all but the word's last letter, such as --beam-size for --beams.
std::string nearest_name(const std::vector<std::string>& names, const std::string& word);

}  // namespace fovea::cli
