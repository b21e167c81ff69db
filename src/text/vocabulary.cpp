#include "fovea/text/vocabulary.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/excerpt.h"
#include "files/json_scanner.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr std::array<std::string_view, kNumSpecialIds> kSpecialPieces{"<pad>", "<unk>", "<s>", "</s>"};
// Larger than the word list of a whole web crawl. A junk file of any size is refused before it is read.
constexpr std::uintmax_t kMaxVocabularyBytes = std::uintmax_t{256} << 20;

// Where the piece of an id stands in the text, in 8 bytes: a file of a short piece a line has 10 bytes for
// each.
struct PieceSpan {
  std::uint32_t at = 0, size = 0;
};

[[noreturn]] void refuse_special(const std::string& name, std::size_t id) {
  throw FileError(name, -1, "id " + std::to_string(id) + " is not " + std::string(kSpecialPieces[id]));
}

}  // namespace

std::string_view special_piece(std::int32_t id) {
  if (id < 0 || id >= kNumSpecialIds)
    throw InvalidArgument("special_piece", "id", "0..3", std::to_string(id));
  return kSpecialPieces[static_cast<std::size_t>(id)];
}

bool is_special_piece(std::string_view piece) {
  return std::ranges::find(kSpecialPieces, piece) != std::end(kSpecialPieces);
}

Vocabulary::Vocabulary() {
  for (const std::string_view piece : kSpecialPieces) add(std::string(piece));
}

bool Vocabulary::add(std::string piece) {
  if (!ids_.try_emplace(piece, static_cast<std::int32_t>(pieces_.size())).second) return false;
  pieces_.push_back(std::move(piece));
  return true;
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
    vocabulary.add(std::string(piece));
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
  std::string bytes = files::read_file(file, kMaxVocabularyBytes);
  files::JsonScanner scanner(name, bytes, files::JsonScanner::Position::line);
  // `"":0,` is the shortest member, and ids are 0 .. members-1.
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<PieceSpan> places(bytes.size() / 5 + 1, {0, kNone});
  std::size_t count = 0, end = 0;
  scanner.open_object("a JSON object of pieces and ids");
  for (std::string_view piece; scanner.next_member(piece); ++count) {
    scanner.set_context("the id of", piece);
    const std::uint64_t id = scanner.number();
    if (id >= places.size() || places[id].size != kNone) {
      scanner.fail("the ids are not 0, 1, 2 and so on, each once: " + std::to_string(id) +
                   (id < places.size() ? " is there twice" : " is larger than there are pieces"));
    }
    scanner.set_context("", "");
    places[id] = {static_cast<std::uint32_t>(piece.data() - bytes.data()),
                  static_cast<std::uint32_t>(piece.size())};
    end = std::max(end, static_cast<std::size_t>(id) + 1);
  }
  scanner.finish();
  // Ids are distinct, so an id beyond the number of pieces means that a smaller one is missing.
  if (end != count) {
    throw FileError(name, -1,
                    "the ids of " + std::to_string(count) + " pieces are not 0.." +
                        std::to_string(count - 1) + ", each once: one is " + std::to_string(end - 1));
  }
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(count);
  vocabulary.pieces_.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    const std::string_view piece = std::string_view(bytes).substr(places[id].at, places[id].size);
    if (id < kSpecialPieces.size()) {
      if (piece != kSpecialPieces[id]) refuse_special(name, id);
    } else if (!vocabulary.add(std::string(piece))) {
      throw FileError(name, -1, "\"" + excerpt(piece) + "\" is there twice");
    }
  }
  if (count < kSpecialPieces.size()) refuse_special(name, count);
  return vocabulary;
}

void Vocabulary::save(const std::filesystem::path& file) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  // ordered_json looks keys up linearly; pieces are distinct, so they are appended without looking.
  auto& object = json.get_ref<nlohmann::ordered_json::object_t&>();
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    object.emplace_back(pieces_[id], static_cast<std::int64_t>(id));
  }
  files::write_file(file, json.dump(0, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
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
