// The name that a misspelt word was perhaps meant for.
#pragma once

#include <string>
#include <vector>

namespace fovea::cli {

/// One of the names of options, such as "--model", and commands, or an empty text. The shortest name that
/// begins with the word comes first, then one that ends with it, such as --cpu-threads for --threads. The
/// name at the smallest edit distance follows, if that is small. The last is one that begins with all but the
/// word's last letter, such as --beam-size for --beams.
std::string nearest_name(const std::vector<std::string>& names, const std::string& word);

}  // namespace fovea::cli
