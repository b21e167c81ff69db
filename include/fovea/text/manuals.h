// The text to learn: files that every Debian system with the packages of ./run has, or one file. It is split
// into training, validation (for choosing settings) and test (which no choice has seen).
#pragma once

#include <string>
#include <vector>

namespace fovea::text {

struct ManualSource {
  std::string path;
  std::size_t bytes = 0;
};

struct ManualTexts {
  std::vector<ManualSource> sources;  ///< in the order they were read
  std::size_t left_out = 0;           ///< characters of paragraphs that an earlier document has
  /// Each paragraph is one line; an empty line stands before every document.
  std::string train, valid, test;
};

/// The licences of base-files and, where CMake's own manual is installed, that too; with `file`, that file
/// alone. A paragraph becomes one line of printable ASCII with single blanks. A file is cut between
/// paragraphs into documents of at most 16,000 characters. A paragraph is left out if more than a quarter of
/// its runs of six words occur in an earlier document. Each document belongs to one part, by a hash of its
/// text: 90, 5 and 5 per cent. Throws FileError.
ManualTexts read_manuals(const std::string& file = {});

}  // namespace fovea::text
