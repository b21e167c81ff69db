// The two Unicode properties that BLEU depends on, as Python's str has them; for this directory only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

/// str.lower(), final sigma included. Bytes that are not UTF-8 stay as they are.
std::string lower_case(std::string_view text);
/// str.isspace() of one code point.
bool is_unicode_space(char32_t point);
/// str.split(): words between Unicode white space (a no-break space splits).
std::vector<std::string_view> split_unicode(std::string_view text);

}  // namespace fovea::text
