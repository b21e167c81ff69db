// Damaged JSON, for readers of untrusted files.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "fovea/core/philox.h"

namespace fovea::files {

// Replaces, inserts, removes and repeats pieces of JSON and single bytes.
inline std::string mutated(std::string text, PhiloxStream& random) {
  static const std::string pieces[] = {"{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "\"",
                                       "null",
                                       "true",
                                       "-1",
                                       "1e999",
                                       "0.5",
                                       "\\u0",
                                       "\\ud800",
                                       "\xc3",
                                       "\xe2\x82",
                                       "\"dtype\"",
                                       "\"shape\"",
                                       "\"a\":",
                                       "[[[[[[[[",
                                       "{\"a\":{\"a\":",
                                       "18446744073709551616",
                                       "9223372036854775807",
                                       "00",
                                       " ",
                                       "\n",
                                       "\x01",
                                       "\"__metadata__\":{\"k\":\"v\"},"};
  for (std::uint32_t changes = 1 + random.next_below(3); changes > 0; --changes) {
    const std::size_t at = random.next_below(static_cast<std::uint32_t>(text.size() + 1));
    switch (random.next_below(6)) {
      case 0:
        text.insert(at, pieces[random.next_below(std::size(pieces))]);
        break;
      case 1:
        text.erase(at, 1 + random.next_below(8));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random.next_below(256));
        break;
      case 3:
        text.insert(at, text.substr(at / 2, random.next_below(40)));
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>('0' + random.next_below(10));
        break;
      default:
        text.resize(random.next_below(20) == 0 ? at : text.size());
        break;
    }
  }
  return text;
}

}  // namespace fovea::files
