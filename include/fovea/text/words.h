// Helpers for generated text: splitting sentences into words, joining words, and a closed list of words.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/vocabulary.h"

namespace fovea::text {

/// The parts between ASCII blanks; none is empty.
std::vector<std::string> split_at_blanks(std::string_view text);
/// The words, joined by single blanks.
std::string joined(std::span<const std::string> words);
/// The pieces of `ids`, joined by single blanks. Throws InvalidArgument for an id that is not in
/// `vocabulary`.
std::string joined(const Vocabulary& vocabulary, std::span<const std::int32_t> ids);

/// Words in a fixed order; a word's id is its index. It has no ids for unknown words, padding or begin and
/// end; Vocabulary has.
class WordList {
 public:
  /// The words of `parts`, one part after the other. Throws InvalidArgument for a word that occurs twice.
  explicit WordList(std::initializer_list<std::vector<std::string>> parts);
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(words_.size()); }
  /// Throws InvalidArgument for a word that is not in the list.
  std::int32_t id_of(std::string_view word) const;
  /// Throws InvalidArgument outside 0 .. size()-1.
  const std::string& word(std::int32_t id) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
};

}  // namespace fovea::text
