// From Oniguruma's syntax to PCRE2's.
#pragma once

#include <string>
#include <string_view>

namespace fovea::text::pipeline {

/// The pattern for libpcre2 that means what `pattern` means to Oniguruma. Throws InvalidArgument for syntax
/// that cannot be translated.
std::string pcre2_pattern(std::string_view pattern);

}  // namespace fovea::text::pipeline
