// A closed list of pieces and their ids. `vocab.json` stores it as one object, piece -> id, as Hugging Face's
// word-level and Marian tokenizers do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fovea::text {

/// The same four ids in every tokenizer. Padding is 0 so that a zero-filled batch is already padded.
inline constexpr std::int32_t kPadId = 0;
inline constexpr std::int32_t kUnknownId = 1;
inline constexpr std::int32_t kBosId = 2;
inline constexpr std::int32_t kEosId = 3;
inline constexpr std::int32_t kNumSpecialIds = 4;

/// How the special piece of an id is spelt: `<pad>`, `<unk>`, `<s>` or `</s>`. Throws InvalidArgument for an
/// id outside 0 .. 3.
std::string_view special_piece(std::int32_t id);
/// Whether a piece is spelt like one of these four.
bool is_special_piece(std::string_view piece);

/// Pieces and ids, 0 .. size()-1 without gaps, the four special pieces first.
class Vocabulary {
 public:
  Vocabulary();
  /// The special pieces, then the pieces of `counts` that occur at least `min_frequency` times, most frequent
  /// first. Equally frequent pieces are in bytewise order, so that the result does not depend on the
  /// platform. At most `max_size` entries in all (0: no limit). Throws InvalidArgument for negative numbers,
  /// and for a max_size that does not hold the special pieces.
  static Vocabulary from_counts(const std::unordered_map<std::string, std::int64_t>& counts,
                                std::int64_t min_frequency, std::int64_t max_size);
  /// The special pieces, then every word of `words` once, in bytewise order.
  static Vocabulary of_words(std::span<const std::string> words);
  /// Throws FileError unless the file is a JSON object from distinct strings to the integers 0 .. size-1,
  /// with the special pieces at their places.
  static Vocabulary load(const std::filesystem::path& file);
  /// Writes what `load` reads. Throws FileError.
  void save(const std::filesystem::path& file) const;

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(pieces_.size()); }
  /// kUnknownId for a piece that is not in the list.
  std::int32_t id_of(std::string_view piece) const;
  /// Throws InvalidArgument outside 0 .. size()-1.
  const std::string& piece(std::int32_t id) const;

 private:
  // Ids are looked up by views of a text. Not noexcept: libstdc++ then keeps the hashes, and does not compute
  // those of neighbours again in each search.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
  };
  /// Appends a piece; false if it is there already.
  bool add(std::string piece);

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace fovea::text
