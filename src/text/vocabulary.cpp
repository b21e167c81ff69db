#include "fovea/text/vocabulary.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "fovea/core/error.h"
#include "text/file_bytes.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr std::array<std::string_view, kNumSpecialIds> kSpecialPieces{"<pad>", "<unk>", "<s>", "</s>"};
// A word list of a whole web crawl stays below this; a junk file of any size is refused before it is read.
constexpr std::uintmax_t kMaxVocabularyBytes = std::uintmax_t{256} << 20;

// The parser recurses with the nesting, so junk of a million '[' must be stopped before it: a vocabulary has
// one level.
void refuse_nesting(const std::string& name, const std::string& bytes) {
  bool in_string = false;
  int depth = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (in_string) {
      if (bytes[i] == '\\')
        ++i;
      else if (bytes[i] == '"')
        in_string = false;
    } else if (bytes[i] == '"') {
      in_string = true;
    } else if (bytes[i] == '[' || bytes[i] == '{') {
      if (++depth > 1)
        throw FileError(name, static_cast<std::int64_t>(i), "a vocabulary has no nested values");
    } else if (bytes[i] == ']' || bytes[i] == '}') {
      --depth;
    }
  }
}

}  // namespace

std::string_view special_piece(std::int32_t id) {
  if (id < 0 || id >= kNumSpecialIds)
    throw InvalidArgument("special_piece", "id", "0..3", std::to_string(id));
  return kSpecialPieces[static_cast<std::size_t>(id)];
}

Vocabulary::Vocabulary() {
  for (const std::string_view piece : kSpecialPieces) add(std::string(piece));
}

void Vocabulary::add(std::string piece) {
  ids_.emplace(piece, static_cast<std::int32_t>(pieces_.size()));
  pieces_.push_back(std::move(piece));
}

Vocabulary Vocabulary::from_counts(const std::unordered_map<std::string, std::int64_t>& counts,
                                   std::int64_t min_frequency, std::int64_t max_size) {
  if (max_size < 0 || (max_size > 0 && max_size < kNumSpecialIds)) {
    throw InvalidArgument("Vocabulary::from_counts", "max_size", "0 (no limit) or at least 4",
                          std::to_string(max_size));
  }
  if (min_frequency < 0) {
    throw InvalidArgument("Vocabulary::from_counts", "min_frequency", "0 or more",
                          std::to_string(min_frequency));
  }
  std::vector<std::pair<std::int64_t, std::string_view>> order;
  for (const auto& [piece, count] : counts) {
    if (count >= min_frequency) order.emplace_back(-count, piece);
  }
  std::sort(order.begin(), order.end());
  Vocabulary vocabulary;
  for (const auto& [count, piece] : order) {
    if (max_size > 0 && vocabulary.size() >= max_size) break;
    if (!vocabulary.ids_.contains(piece)) vocabulary.add(std::string(piece));
  }
  return vocabulary;
}

Vocabulary Vocabulary::of_words(std::span<const std::string> words) {
  std::unordered_map<std::string, std::int64_t> counts;
  for (const std::string& word : words) counts[word] = 1;
  return from_counts(counts, 1, 0);
}

Vocabulary Vocabulary::load(const std::filesystem::path& file) {
  const std::string name = file.string();
  const std::string bytes = read_bytes(file, kMaxVocabularyBytes);
  refuse_nesting(name, bytes);
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(bytes);
  } catch (const nlohmann::json::parse_error& error) {
    throw FileError(name, static_cast<std::int64_t>(error.byte), std::string("is no JSON: ") + error.what());
  }
  if (!json.is_object()) throw FileError(name, -1, "is no JSON object of pieces and ids");
  std::vector<const std::string*> by_id(json.size(), nullptr);
  for (auto item = json.begin(); item != json.end(); ++item) {
    const std::string& piece = item.key();
    if (!item->is_number_integer()) throw FileError(name, -1, "the id of \"" + piece + "\" is no integer");
    const auto id = item->get<std::int64_t>();
    if (id < 0 || id >= static_cast<std::int64_t>(by_id.size()) || by_id[static_cast<std::size_t>(id)]) {
      throw FileError(name, -1,
                      "the ids are not 0.." + std::to_string(static_cast<std::int64_t>(by_id.size()) - 1) +
                          ", each once: \"" + piece + "\" has " + std::to_string(id));
    }
    by_id[static_cast<std::size_t>(id)] = &piece;
  }
  for (std::size_t id = 0; id < kSpecialPieces.size(); ++id) {
    if (id >= by_id.size() || *by_id[id] != kSpecialPieces[id]) {
      throw FileError(name, -1, "id " + std::to_string(id) + " is not " + std::string(kSpecialPieces[id]));
    }
  }
  Vocabulary vocabulary;
  for (std::size_t id = kSpecialPieces.size(); id < by_id.size(); ++id) vocabulary.add(*by_id[id]);
  return vocabulary;
}

void Vocabulary::save(const std::filesystem::path& file) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  // ordered_json looks keys up linearly; pieces are distinct, so they are appended without looking.
  auto& object = json.get_ref<nlohmann::ordered_json::object_t&>();
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    object.emplace_back(pieces_[id], static_cast<std::int64_t>(id));
  }
  write_bytes(file, json.dump(0, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::int32_t Vocabulary::id_of(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? kUnknownId : found->second;
}

const std::string& Vocabulary::piece(std::int32_t id) const {
  if (id < 0 || id >= size()) {
    throw InvalidArgument("Vocabulary::piece", "id", "0.." + std::to_string(size() - 1), std::to_string(id));
  }
  return pieces_[static_cast<std::size_t>(id)];
}

}  // namespace fovea::text
