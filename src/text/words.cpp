#include "fovea/text/words.h"

#include "fovea/core/error.h"
#include "text/utf8.h"

namespace fovea::text {

std::vector<std::string> split_at_blanks(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  return {words.begin(), words.end()};
}

std::string joined(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (&word == words.data() ? "" : " ") + word;
  return text;
}

std::string joined(const Vocabulary& vocabulary, std::span<const std::int32_t> ids) {
  std::vector<std::string> words;
  for (const std::int32_t id : ids) words.push_back(vocabulary.piece(id));
  return joined(words);
}

WordList::WordList(std::initializer_list<std::vector<std::string>> parts) {
  for (const std::vector<std::string>& part : parts) {
    for (const std::string& word : part) {
      if (!ids_.emplace(word, static_cast<std::int32_t>(words_.size())).second)
        throw InvalidArgument("WordList", "parts", "different words", "\"" + word + "\" twice");
      words_.push_back(word);
    }
  }
}

std::int32_t WordList::id_of(std::string_view word) const {
  const auto found = ids_.find(word);
  if (found == ids_.end())
    throw InvalidArgument("WordList::id_of", "word", "one of the list", "\"" + std::string(word) + "\"");
  return found->second;
}

const std::string& WordList::word(std::int32_t id) const {
  if (id < 0 || id >= size())
    throw InvalidArgument("WordList::word", "id", "0 to " + std::to_string(size() - 1), std::to_string(id));
  return words_[static_cast<std::size_t>(id)];
}

}  // namespace fovea::text
