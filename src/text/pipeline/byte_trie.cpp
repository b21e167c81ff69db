#include "text/pipeline/byte_trie.h"

namespace fovea::text::pipeline {

void ByteTrie::add(std::string_view text, std::int32_t value) {
  const auto append = [&](unsigned char byte, std::uint32_t sibling) {
    nodes_.push_back({.sibling = sibling, .byte = byte});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  };
  std::uint32_t& first = first_[static_cast<unsigned char>(text[0])];
  if (first == kNone) first = append(static_cast<unsigned char>(text[0]), kNone);
  std::uint32_t node = first;
  for (const char letter : text.substr(1)) {
    const auto byte = static_cast<unsigned char>(letter);
    std::uint32_t next = child(node, byte);
    if (next == kNone) {
      next = append(byte, nodes_[node].child);
      nodes_[node].child = next;
    }
    node = next;
  }
  nodes_[node].value = value;
}

}  // namespace fovea::text::pipeline
