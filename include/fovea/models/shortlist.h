// A lexical short-list: the target pieces that a translation of a source may have. A decoder that chooses
// among some hundreds of pieces, and not the whole vocabulary, computes no other row of its output layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

namespace fovea::models {

/// For each source piece its most probable translations, and pieces that every source has.
///
/// The candidates of a sentence depend on that sentence alone. A list of a whole batch, as Marian's (Junczys-
/// Dowmunt et al. 2018, arXiv 1804.00344), would give larger products, but a translation would then depend on
/// its neighbours. Jean et al. 2015 (arXiv 1412.2007, section 3.3) choose candidates by sentence too.
class Shortlist {
 public:
  Shortlist() = default;
  /// `always` are candidates of every sentence, `translations[piece]` those of a source piece. Throws
  /// InvalidArgument for ids outside [0, translations.size()).
  Shortlist(std::vector<std::int32_t> always, const std::vector<std::vector<std::int32_t>>& translations);

  std::int64_t vocabulary() const noexcept { return static_cast<std::int64_t>(starts_.size()) - 1; }
  std::span<const std::int32_t> always() const noexcept { return always_; }
  /// Throws InvalidArgument for an id outside the vocabulary.
  std::span<const std::int32_t> translations(std::int32_t piece) const;
  /// `always`, the translations of the pieces of `source`, and those pieces themselves, which may be names:
  /// ascending, each once. Throws InvalidArgument for an id outside the vocabulary.
  std::vector<std::int32_t> candidates(std::span<const std::int32_t> source) const;

  /// Writes "FOVEASL1" and little-endian numbers of 32 bits. They are the vocabulary V, the count of `always`
  /// and their ids, the count of the translations of each of V pieces, and the ids of all translations.
  void save(const std::filesystem::path& file) const;
  /// Throws FileError, with the byte, for a file that is not well-formed, is of another vocabulary or larger
  /// than 1 GiB. Memory is at most twice the file's size.
  static Shortlist load(const std::filesystem::path& file, std::int64_t vocabulary);

  friend bool operator==(const Shortlist&, const Shortlist&) = default;

 private:
  std::vector<std::int32_t> always_, ids_;
  std::vector<std::uint32_t> starts_{0};  // of the translations of each piece in ids_
};

/// folder/shortlist.bin.
std::filesystem::path shortlist_path(const std::filesystem::path& folder);

struct ShortlistOptions {
  std::int64_t vocabulary = 0;
  std::int64_t translations = 50;       ///< of a source piece, at most
  std::int64_t always = 100;            ///< the most frequent target pieces
  std::vector<std::int32_t> also = {};  ///< candidates of every sentence besides, such as the end
  int iterations = 5;                   ///< of expectation maximisation
  double least_probability = 1e-4;      ///< a less probable translation is left out
};
/// Learns a short-list from pairs of source and target ids. IBM Model 1 estimates the probability that a
/// source piece is translated as a target piece (Brown et al. 1993, section 4.2, with an empty source word).
/// Results depend on the pairs and the options alone. Memory is 12 bytes for each two pieces that occur in
/// one pair, and as much again while they are counted. Throws InvalidArgument for ids outside the vocabulary,
/// and for options below 0.
Shortlist learn_shortlist(
    std::span<const std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>> pairs,
    const ShortlistOptions& options);

}  // namespace fovea::models
