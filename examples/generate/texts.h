// The text to learn: what every Debian system with the packages of ./run has installed, or one file, in parts
// that were read (training), that settle choices (validation), and that neither saw (test).
#pragma once

#include <string>
#include <vector>

namespace generate {

/// Stands before every document, and at the very end.
inline constexpr char document_mark = '\0';

struct Source {
  std::string path;
  std::size_t bytes = 0;  ///< of the file, before duplicates are left out
};

struct Texts {
  std::vector<Source> sources;     ///< in the order they were read
  std::size_t bytes = 0;           ///< of all sources
  std::size_t left_out = 0;        ///< bytes of paragraphs that an earlier document has
  std::string train, valid, test;  ///< documents, each after a mark
};

/// The licences of base-files and, where CMake's own documentation is installed, that too; with `file`, that
/// file alone. A file is cut into documents of at most 16,000 bytes where a line is empty; a paragraph more
/// than half of whose runs of eight words stand in an earlier document is left out; and each document belongs
/// to one part by a hash of its text. Throws FileError.
Texts read_texts(const std::string& file);

}  // namespace generate
