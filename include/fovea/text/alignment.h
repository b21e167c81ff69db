// Here is text: tokenizers, corpora, labels, CSV, BLEU and word alignments. Tensors are not here; models see
// only the ids that a tokenizer makes. Open tokenizer.h first.
//
// This header has word alignments: the Pharaoh format, the alignment error rate (Och and Ney 2003), and links
// between words from attention weights over sub-words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/corpus.h"

namespace fovea::text {

/// "0-0 1-2" to links, in the order written. Throws InvalidArgument that names the column of the mistake.
Alignment parse_pharaoh(std::string_view line);
/// "0-0 1-2"; an empty alignment is an empty line.
std::string to_pharaoh(const Alignment& alignment);
/// One alignment a line, empty lines kept. Throws FileError with the line number.
std::vector<Alignment> read_pharaoh(const std::filesystem::path& file);

/// A human alignment of one sentence pair: sure links, and possible ones (which need not repeat the sure
/// ones).
struct GoldAlignment {
  Alignment sure, possible;
};

/// The format of the shared task of HLT-NAACL 2003: lines `sentence source target [S|P] [confidence]`,
/// counted from 1. A link without S or P is sure. Result i belongs to sentence i + 1, and is empty if that
/// has no links. Throws FileError with the line number.
std::vector<GoldAlignment> read_naacl_alignments(const std::filesystem::path& file);
/// Makes all links sure, as those of a generated corpus are.
std::vector<GoldAlignment> as_gold(std::span<const Alignment> alignments);

/// Corpus-level scores of Och and Ney 2003, "A systematic comparison of various statistical alignment
/// models", section 6. A are the proposed links, S the sure ones and P the possible ones (S included):
///   precision = |A n P| / |A|, recall = |A n S| / |S|, AER = 1 - (|A n S| + |A n P|) / (|A| + |S|).
struct AlignmentScore {
  std::int64_t proposed = 0, sure = 0, matched_sure = 0, matched_possible = 0;
  double precision() const noexcept;   ///< 0 without proposed links
  double recall() const noexcept;      ///< 0 without sure links
  double error_rate() const noexcept;  ///< 0 when there are neither
  /// "AER = 0.123 precision = 0.901 recall = 0.855 (1234 proposed, 1301 sure)".
  std::string to_string() const;
};

/// Links given twice count once. Throws InvalidArgument when the numbers of sentences differ.
AlignmentScore score_alignments(std::span<const Alignment> proposed, std::span<const GoldAlignment> gold);

/// A weight for each (target, source) pair, row-major [target_len, source_len].
struct AlignmentWeights {
  std::size_t target_len = 0, source_len = 0;
  std::vector<float> weights;

  float at(std::size_t target, std::size_t source) const { return weights[target * source_len + source]; }
};

/// Turns weights over pieces into weights over words: the sum over the pieces of a source word, the mean over
/// those of a target word. A row that sums to 1 still does. `target_word` and `source_word` are
/// Tokenizer::word_of of each side. Throws InvalidArgument when sizes disagree, and when word indices are
/// negative or decrease.
AlignmentWeights merge_pieces(const AlignmentWeights& pieces, std::span<const std::int32_t> target_word,
                              std::span<const std::int32_t> source_word);

/// The sizes of the two sides without </s>, and the smallest weight that makes a link.
struct HardAlignmentOptions {
  std::size_t num_targets = 0, num_sources = 0;
  float threshold = 0;
};

/// Links each of the first `num_targets` target words to the source word of its largest weight, the first of
/// equals. There is no link if that weight is below `threshold`. Columns from `num_sources` on and rows from
/// `num_targets` on belong to </s>. A target word whose largest weight lies on such a column gets no link: a
/// model that looks at </s> says that the word has no counterpart. Throws InvalidArgument for sizes that do
/// not fit.
Alignment hard_alignment(const AlignmentWeights& words, const HardAlignmentOptions& options);

}  // namespace fovea::text
