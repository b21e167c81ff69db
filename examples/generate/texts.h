// The text to learn: what every Debian system with the packages of ./run has installed, or one file, in a
// part to read (training), one to settle choices with (validation) and one that no choice has seen (test).
#pragma once

#include <string>
#include <vector>

namespace generate {

struct Source {
  std::string path;
  std::size_t bytes = 0;
};

struct Texts {
  std::vector<Source> sources;  ///< in the order they were read
  std::size_t left_out = 0;     ///< characters of paragraphs that an earlier document has
  /// Paragraphs, each a line; an empty line stands before every document.
  std::string train, valid, test;
};

/// The licences of base-files and, where CMake's own manual is installed, that too; with `file`, that file
/// alone. A paragraph becomes one line of printable ASCII with single blanks. A file is cut between
/// paragraphs into documents of at most 16,000 characters. A paragraph more than a quarter of whose runs of
/// six words stand in an earlier document is left out. Each document belongs to one part, by a hash of its
/// text: 90, 5 and 5 of a hundred. Throws FileError.
Texts read_texts(const std::string& file);

}  // namespace generate
