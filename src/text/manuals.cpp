#include "fovea/text/manuals.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <unordered_set>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/text/generated.h"

namespace fovea::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_file = std::size_t{1} << 26, longest_document = 16'000, run_of_words = 6;
// Shorter paragraphs are headings and the like, which may repeat.
constexpr std::size_t shortest_paragraph = 40;

void add_files(const fs::path& folder, const std::string& extension, std::vector<std::string>& paths) {
  std::error_code none;
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    // GPL and similar names are links to the newest version.
    if (!entry.is_symlink() && entry.is_regular_file() && entry.path().extension() == extension)
      found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  paths.insert(paths.end(), found.begin(), found.end());
}

std::vector<std::string> installed() {
  std::vector<std::string> paths;
  const fs::path share = "/usr/share";
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(share / "common-licenses", none)) {
    if (!entry.is_symlink() && entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<fs::path> manuals;
  for (const auto& entry : fs::directory_iterator(share, none)) {
    if (entry.path().filename().string().starts_with("cmake")) manuals.push_back(entry.path() / "Help");
  }
  std::sort(manuals.begin(), manuals.end());
  for (const fs::path& manual : manuals) add_files(manual, ".rst", paths);
  return paths;
}

// A line as words with one blank between them; empty for a line that only underlines the line above.
// Characters other than printable ASCII become question marks.
std::string words_of(std::string_view line) {
  std::string words;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::isspace(byte)) {
      words += byte > ' ' && byte < 127 ? c : '?';
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  if (words.ends_with(' ')) words.pop_back();
  const bool underline = words.size() >= 3 && words.find_first_not_of(words[0]) == std::string::npos;
  return underline ? std::string() : words;
}

// Paragraphs: runs of lines that are not empty, each as one line.
std::vector<std::string> paragraphs_of(std::string_view text) {
  std::vector<std::string> paragraphs(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string words = words_of(line);
    if (!words.empty()) {
      paragraphs.back() += (paragraphs.back().empty() ? "" : " ") + words;
    } else if (line.find_first_not_of(" \t\r\f") == std::string_view::npos && !paragraphs.back().empty()) {
      paragraphs.emplace_back();
    }
  }
  if (paragraphs.back().empty()) paragraphs.pop_back();
  return paragraphs;
}

// The paragraph's runs of six words (or all its words, if they are fewer), in lower case and with every
// digit as 0.
std::vector<std::string> runs_of(const std::string& paragraph) {
  std::vector<std::string> words(1);
  for (const char c : paragraph) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte)) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += std::isdigit(byte) ? '0' : static_cast<char>(std::tolower(byte));
    }
  }
  if (words.back().empty()) words.pop_back();
  std::vector<std::string> runs;
  for (std::size_t i = 0; i == 0 || i + run_of_words <= words.size(); ++i) {
    std::string run;
    for (std::size_t j = i; j < std::min(i + run_of_words, words.size()); ++j) run += words[j] + ' ';
    runs.push_back(run);
  }
  return runs;
}

// Adds documents one after another. A paragraph that an earlier document has is left out.
class Collection {
 public:
  explicit Collection(ManualTexts& texts) : texts_(texts) {}

  void add(const std::string& paragraph) {
    if (document_.size() + paragraph.size() > longest_document) finish_document();
    const std::vector<std::string> runs = runs_of(paragraph);
    const auto known = std::count_if(runs.begin(), runs.end(),
                                     [&](const std::string& run) { return earlier_.contains(run); });
    if (paragraph.size() >= shortest_paragraph && 4 * static_cast<std::size_t>(known) > runs.size()) {
      texts_.left_out += paragraph.size();
      return;
    }
    own_.insert(own_.end(), runs.begin(), runs.end());
    document_ += paragraph + '\n';
  }

  void finish_document() {
    if (document_.empty()) return;
    const Split split = split_of(document_);
    std::string& part = split == Split::train   ? texts_.train
                        : split == Split::valid ? texts_.valid
                                                : texts_.test;
    part += '\n' + document_;
    earlier_.insert(own_.begin(), own_.end());
    own_.clear();
    document_.clear();
  }

 private:
  ManualTexts& texts_;
  std::unordered_set<std::string> earlier_;
  std::vector<std::string> own_;
  std::string document_;
};

}  // namespace

ManualTexts read_manuals(const std::string& file) {
  ManualTexts texts;
  Collection collection(texts);
  for (const std::string& path : file.empty() ? installed() : std::vector<std::string>{file}) {
    const std::string text = files::read_file(path, longest_file);
    texts.sources.push_back({path, text.size()});
    for (const std::string& paragraph : paragraphs_of(text)) collection.add(paragraph);
    collection.finish_document();
  }
  for (std::string* part : {&texts.train, &texts.valid, &texts.test}) {
    if (part->size() < 2000) {
      throw FileError(file.empty() ? "/usr/share/common-licenses" : file, -1,
                      "too little text: a part of it has fewer than 2,000 characters");
    }
  }
  return texts;
}

}  // namespace fovea::text
