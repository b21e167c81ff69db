// Python's str, over UTF-8: places count characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace fovea::text::jinja {

class Budget;

// Functions without a budget take time in proportion to their texts, which the caller pays. Those with one
// also pay for what they return, or throw Failure.

std::vector<std::string_view> characters(std::string_view text, Budget& budget);
/// The byte at which character `index` begins; the size behind the last one.
std::size_t byte_of(std::string_view text, std::int64_t index);

/// str.upper(), str.title() and str.capitalize(). Throw Failure for the hundred characters, such as ß, that
/// become several.
std::string upper(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

/// The byte at which `wanted` stands first, or last; npos. In linear time, which std::string::find is not.
std::size_t find_first(std::string_view text, std::string_view wanted);
std::size_t find_last(std::string_view text, std::string_view wanted, Budget& budget);

enum class Side : std::uint8_t { both, left, right };
/// str.strip() of `chars`, or of white space.
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, std::string_view chars, Side side, Budget& budget);
/// str.split(); without a separator between white space. `most`: splits at most; -1: all.
std::vector<std::string_view> split(std::string_view text, std::int64_t most, Budget& budget);
std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most,
                                    Budget& budget);
/// str.rsplit() with the same arguments.
std::vector<std::string_view> split_right(std::string_view text, std::int64_t most, Budget& budget);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator,
                                          std::int64_t most, Budget& budget);
/// str.splitlines().
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends, Budget& budget);
/// str.replace(); `most`: -1: all. The budget has room for the result, and does not pay it yet.
std::string replace(std::string_view text, std::string_view old, std::string_view with, std::int64_t most,
                    Budget& budget);

enum class Class : std::uint8_t { alpha, digit, alnum, space, upper, lower, ascii };
/// str.isalpha() and its like. Throws Failure for characters of which Unicode's categories do not say it.
bool is_of(std::string_view text, Class of);

/// repr() of a text.
std::string quoted(std::string_view text);
/// As json.dumps writes a text.
std::string json_quoted(std::string_view text, bool ascii);

}  // namespace fovea::text::jinja
