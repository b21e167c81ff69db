// What an error shows of text that came from outside.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fovea {

/// `text` as it is if it has at most `most` characters, otherwise its first 60 and its length:
/// "aaa… (100,000 characters)". Characters are counted as UTF-8, and the cut never splits one. `most` is at
/// least 60.
std::string excerpt(std::string_view text, std::size_t most = 60);

/// The same for every run of more than `most` characters without a blank: for messages of other libraries,
/// which have put a value in the middle of a sentence.
std::string excerpt_words(std::string_view text, std::size_t most = 60);

}  // namespace fovea
