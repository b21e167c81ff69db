// Texts and their numbers, found at the beginning of other texts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fovea::text::pipeline {

/// Costs 16 bytes for each byte of the texts at most.
class ByteTrie {
 public:
  /// A text that was added before gets the new value. `text` is not empty.
  void add(std::string_view text, std::int32_t value);
  /// Calls found(length, value) for every text that `text` begins with, shortest first.
  template <class Found>
  void prefixes(std::string_view text, Found&& found) const;
  bool empty() const noexcept { return nodes_.empty(); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    std::int32_t value = -1;
    std::uint32_t child = kNone, sibling = kNone;
    unsigned char byte = 0;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    std::uint32_t at = nodes_[node].child;
    while (at != kNone && nodes_[at].byte != byte) at = nodes_[at].sibling;
    return at;
  }

  // Nodes for first bytes are found by index, because there can be 256 of them.
  std::array<std::uint32_t, 256> first_ = [] {
    std::array<std::uint32_t, 256> none{};
    none.fill(kNone);
    return none;
  }();
  std::vector<Node> nodes_;
};

template <class Found>
void ByteTrie::prefixes(std::string_view text, Found&& found) const {
  if (text.empty()) return;
  std::uint32_t node = first_[static_cast<unsigned char>(text[0])];
  for (std::size_t length = 1; node != kNone; ++length) {
    if (nodes_[node].value >= 0) found(length, nodes_[node].value);
    if (length == text.size()) return;
    node = child(node, static_cast<unsigned char>(text[length]));
  }
}

}  // namespace fovea::text::pipeline
