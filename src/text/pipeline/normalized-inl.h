// Templates of normalized.h.
#pragma once

#include "text/utf8.h"

namespace fovea::text::pipeline {

template <class Keep>
void Normalized::filter(Keep&& keep) {
  std::vector<Change> changes;
  std::size_t dropped = 0;
  for (std::size_t at = 0; at < text_.size();) {
    const CodePoint point = decode_utf8(text_, at);
    at += static_cast<std::size_t>(point.bytes);
    if (keep(point.value))
      changes.push_back({point.value, 0});
    else if (changes.empty())
      ++dropped;
    else
      --changes.back().added;
  }
  transform(changes, dropped);
}

template <class Accept>
std::vector<Part> parts_of(std::string_view text, Accept&& accept) {
  std::vector<Part> parts;
  std::size_t between = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const std::size_t end = at + static_cast<std::size_t>(point.bytes);
    if (accept(point.value)) {
      if (between < at) parts.push_back({between, at, false});
      parts.push_back({at, end, true});
      between = end;
    }
    at = end;
  }
  if (between < text.size()) parts.push_back({between, text.size(), false});
  return parts;
}

}  // namespace fovea::text::pipeline
