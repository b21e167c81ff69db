// Here are the parts of core that need source files, and helpers for error texts and numbers in text. The
// public interface is in include/fovea/core. Open tensor.cpp first.
//
// This header makes foreign text fit for error texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea {

/// Returns `text` unchanged if it has at most `most` characters, otherwise its first 60 characters and its
/// length: "aaa… (100,000 characters)". Characters are counted as UTF-8, and the cut never splits one. `most`
/// is at least 60.
std::string excerpt(std::string_view text, std::size_t most = 60);

/// Shortens every run of more than `most` characters without a blank in the same way. For messages of other
/// libraries that have a value in the middle of a sentence.
std::string excerpt_words(std::string_view text, std::size_t most = 60);

/// What becomes of line breaks in printable.
enum class LineBreaks : std::uint8_t { blanks, kept };
/// `text` with blanks in place of control characters, which a terminal would obey: C0, DEL, and C1 in UTF-8.
std::string printable(std::string_view text, LineBreaks line_breaks = LineBreaks::blanks);

}  // namespace fovea
