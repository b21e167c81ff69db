// Text with classes or tags, in the usual file formats. A line that is not UTF-8 is read as Latin-1, the
// encoding of the older collections.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fovea::text {

struct LabelledLine {
  std::int64_t number = 0;  ///< in its file, from 1
  std::string label;
  std::vector<std::string> words;
};
/// `label word word ...`, blank-separated, one example on each line; empty lines are skipped. Throws
/// FileError with the line's number for a line that has no words, holds a NUL byte or is too long, and for a
/// file without lines.
std::vector<LabelledLine> read_labelled_lines(const std::filesystem::path& file);

struct TaggedSentence {
  std::vector<std::string> words, tags;  ///< one tag for each word
};
/// The format of CoNLL's shared tasks: one word on each line. The first column is the word, the last its tag.
/// An empty line ends a sentence; `-DOCSTART-` lines are skipped. Throws FileError with the line's number for
/// a line with a single column, with a NUL byte, or that is too long. Also for a tag that is neither O nor
/// B-, I-, E- or S- with a type, and for a file without sentences.
std::vector<TaggedSentence> read_conll(const std::filesystem::path& file);

}  // namespace fovea::text
