// Bytes as text (RFC 4648).
#pragma once

#include <string>
#include <string_view>

namespace fovea::files {

/// With padding.
std::string to_base64(std::string_view bytes);

/// The bytes that `text` encodes. Throws InvalidArgument for other characters.
std::string from_base64(std::string_view text);

}  // namespace fovea::files
