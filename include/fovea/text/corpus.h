// Parallel text: pairs of lines, with gold word alignments if there are any. Its readers refuse bad lines, or
// skip and count them.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fovea::text {

/// Source word `source` is aligned with target word `target`, both counted from 0.
struct AlignmentLink {
  int source = 0;
  int target = 0;
  auto operator<=>(const AlignmentLink&) const = default;
};
using Alignment = std::vector<AlignmentLink>;

struct SentencePair {
  std::string source, target;
  bool operator==(const SentencePair&) const = default;
};

struct ParallelCorpus {
  std::vector<SentencePair> pairs;
  /// Empty, or one for each pair; indices count blank-separated words.
  std::vector<Alignment> alignments;

  bool has_alignments() const noexcept { return !alignments.empty(); }
  std::size_t size() const noexcept { return pairs.size(); }
};

enum class Side { source, target, both };
/// The lines of one side. For Side::both: the source lines, followed by the target lines.
std::vector<std::string> lines_of(const ParallelCorpus& corpus, Side side);

/// How a reader treats a bad line. A line is bad if it is not valid UTF-8, contains a NUL byte, is too long,
/// or has the wrong number of columns.
enum class BadLine { refuse, skip_and_count };

struct ReadOptions {
  BadLine bad_line = BadLine::refuse;
  std::int64_t max_line_bytes = 65536;  ///< a longer line is bad, and is never held in memory
  /// The largest number of blank-separated words on each side of a pair; 0: no limit. Longer pairs are
  /// skipped and counted.
  std::int64_t max_words = 0;
};

/// The numbers of pairs that a reader kept and skipped.
struct ReadReport {
  std::int64_t kept = 0;
  std::int64_t skipped_empty = 0;      ///< one side is empty or blank
  std::int64_t skipped_too_long = 0;   ///< more than max_line_bytes or max_words
  std::int64_t skipped_bad_bytes = 0;  ///< not valid UTF-8, or a NUL byte
  std::int64_t skipped_columns =
      0;  ///< TSV: not two or three columns, or a third column that is not an alignment

  std::int64_t skipped() const noexcept {
    return skipped_empty + skipped_too_long + skipped_bad_bytes + skipped_columns;
  }
  /// "kept 29000 pairs, skipped 3 (2 empty, 1 too long)".
  std::string to_string() const;
};

struct ReadResult {
  ParallelCorpus corpus;
  ReadReport report;
};

/// Pairs line i of one file with line i of the other. Empty lines are skipped and counted. A byte order mark
/// and the CR of CRLF are removed. Throws FileError with the line number for bad lines (BadLine::refuse), and
/// always when a file cannot be read or the two have different numbers of lines.
ReadResult read_parallel_files(const std::filesystem::path& source, const std::filesystem::path& target,
                               const ReadOptions& options = {});

/// `source TAB target`, or `source TAB target TAB alignment` (Pharaoh `i-j`), one pair on each line.
/// Alignments are kept only if every kept line has one. Errors as above.
ReadResult read_tsv(const std::filesystem::path& file, const ReadOptions& options = {});

/// The lines of one file, checked as above but with empty ones kept (a hypothesis may be empty). Bad lines
/// are always refused here: dropping one would shift the rest.
std::vector<std::string> read_lines(const std::filesystem::path& file, const ReadOptions& options = {});

/// Writes the format that `read_tsv` reads, with the third column if the corpus has alignments. Throws
/// FileError, and InvalidArgument for a line with a tab or a line break.
void write_tsv(const ParallelCorpus& corpus, const std::filesystem::path& file);
/// Writes two plain files. Errors as `write_tsv`.
void write_parallel_files(const ParallelCorpus& corpus, const std::filesystem::path& source,
                          const std::filesystem::path& target);

}  // namespace fovea::text
