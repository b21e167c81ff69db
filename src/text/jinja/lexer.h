// The tokens of a template. Blanks around tags are gone, as transformers sets trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    data,  ///< text outside of tags
    block_begin,
    block_end,
    variable_begin,
    variable_end,
    name,
    string,  ///< its value, without quotes and escapes
    integer,
    real,
    symbol,  ///< an operator or a bracket
    end
  };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
};

/// A problem of the source, at a line.
struct SyntaxError {
  int line = 1;
  std::string reason;
};

/// Throws SyntaxError.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace fovea::text::jinja
