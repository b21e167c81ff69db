#include "fovea/text/labelled.h"

#include "fovea/core/error.h"
#include "fovea/text/corpus.h"
#include "text/line_reader.h"
#include "text/utf8.h"

namespace fovea::text {

std::vector<LabelledLine> read_labelled_lines(const std::filesystem::path& file) {
  std::vector<LabelledLine> lines;
  LineReader reader(file, ReadOptions{}.max_line_bytes);
  while (reader.next()) {
    const std::string line = reader.utf8_or_latin1();
    const std::vector<std::string_view> words = split_words(line);
    if (words.empty()) continue;
    if (words.size() == 1) reader.refuse("expected: label word word ..., found the label alone");
    lines.push_back({reader.number(), std::string(words[0]), {words.begin() + 1, words.end()}});
  }
  if (lines.empty()) throw FileError(file.string(), -1, "has no lines");
  return lines;
}

namespace {

bool is_tag(std::string_view tag) {
  if (tag == "O") return true;
  return tag.size() > 2 && tag[1] == '-' && std::string_view("BIES").find(tag[0]) != std::string_view::npos;
}

}  // namespace

std::vector<TaggedSentence> read_conll(const std::filesystem::path& file) {
  std::vector<TaggedSentence> sentences;
  TaggedSentence open;
  const auto close = [&] {
    if (!open.words.empty()) sentences.push_back(std::move(open));
    open = {};
  };
  LineReader reader(file, ReadOptions{}.max_line_bytes);
  while (reader.next()) {
    const std::string line = reader.utf8_or_latin1();
    const std::vector<std::string_view> columns = split_words(line);
    if (columns.empty() || columns[0] == "-DOCSTART-") {
      close();
      continue;
    }
    if (columns.size() == 1) reader.refuse("expected: word ... tag, found one column");
    if (!is_tag(columns.back()))
      reader.refuse("expected a tag, O or B-, I-, E-, S- with a type, in the last column; found \"" +
                    std::string(columns.back().substr(0, 40)) + "\"");
    open.words.emplace_back(columns.front());
    open.tags.emplace_back(columns.back());
  }
  close();
  if (sentences.empty()) throw FileError(file.string(), -1, "has no sentences");
  return sentences;
}

}  // namespace fovea::text
