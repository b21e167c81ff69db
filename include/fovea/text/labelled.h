// Text with classes, as the usual files of classification and tagging hold it. A line that is no UTF-8 is
// read as Latin-1, which the older of these collections are written in.
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
/// `label word word ...`, blank-separated, a line each; empty lines are skipped. Throws FileError with the
/// line's number where a line has no words, holds a NUL byte or is too long, and for a file without lines.
std::vector<LabelledLine> read_labelled_lines(const std::filesystem::path& file);

struct TaggedSentence {
  std::vector<std::string> words, tags;  ///< one tag a word
};
/// The columns of CoNLL's shared tasks: a word a line, which is the first column, and its tag, which is the
/// last; an empty line ends a sentence, `-DOCSTART-` lines are skipped. Throws FileError with the line's
/// number where a line has one column alone or a tag that is neither O nor B-, I-, E- or S- with a type,
/// holds a NUL byte or is too long, and for a file without sentences.
std::vector<TaggedSentence> read_conll(const std::filesystem::path& file);

}  // namespace fovea::text
