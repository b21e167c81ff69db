#include "fovea/text/alignment.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>

#include "fovea/core/error.h"
#include "text/line_reader.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// Larger positions are certainly damage, and would make a reader allocate for them.
constexpr int kMaxPosition = 1 << 20;

bool parse_position(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= kMaxPosition;
}

}  // namespace

Alignment parse_pharaoh(std::string_view line) {
  Alignment alignment;
  for (const std::string_view word : split_words(line)) {
    const std::size_t dash = word.find('-');
    AlignmentLink link;
    if (dash == std::string_view::npos || !parse_position(word.substr(0, dash), link.source) ||
        !parse_position(word.substr(dash + 1), link.target)) {
      throw InvalidArgument("parse_pharaoh", "line", "links such as 0-0 1-2",
                            "\"" + std::string(word.substr(0, 40)) + "\" at column " +
                                std::to_string(word.data() - line.data() + 1));
    }
    alignment.push_back(link);
  }
  return alignment;
}

std::string to_pharaoh(const Alignment& alignment) {
  std::string line;
  for (const AlignmentLink& link : alignment) {
    if (!line.empty()) line += ' ';
    line += std::to_string(link.source) + '-' + std::to_string(link.target);
  }
  return line;
}

std::vector<Alignment> read_pharaoh(const std::filesystem::path& file) {
  std::vector<Alignment> alignments;
  LineReader reader(file, ReadOptions{}.max_line_bytes);
  while (reader.next()) {
    reader.refuse_bad();
    try {
      alignments.push_back(parse_pharaoh(reader.line()));
    } catch (const InvalidArgument& error) {
      throw FileError(file.string(), reader.number(), error.what(), "line");
    }
  }
  return alignments;
}

std::vector<GoldAlignment> read_naacl_alignments(const std::filesystem::path& file) {
  std::vector<GoldAlignment> gold;
  LineReader reader(file, ReadOptions{}.max_line_bytes);
  while (reader.next()) {
    reader.refuse_bad();
    const auto words = split_words(reader.line());
    if (words.empty()) continue;
    int sentence = 0, source = 0, target = 0;
    const bool numbers = words.size() >= 3 && parse_position(words[0], sentence) &&
                         parse_position(words[1], source) && parse_position(words[2], target);
    const bool marked = words.size() >= 4 && (words[3] == "S" || words[3] == "P");
    double confidence = 0;
    const std::string_view last = words.empty() ? std::string_view() : words.back();
    const bool rest = words.size() <= 3 || (marked && words.size() == 4) ||
                      (words.size() == (marked ? 5u : 4u) &&
                       std::from_chars(last.data(), last.data() + last.size(), confidence).ec == std::errc());
    if (!numbers || sentence < 1 || source < 1 || target < 1 || !rest) {
      throw FileError(file.string(), reader.number(), "expected: sentence source target [S|P] [confidence]",
                      "line");
    }
    if (static_cast<std::size_t>(sentence) > gold.size()) gold.resize(static_cast<std::size_t>(sentence));
    GoldAlignment& of = gold[static_cast<std::size_t>(sentence) - 1];
    (marked && words[3] == "P" ? of.possible : of.sure).push_back({source - 1, target - 1});
  }
  return gold;
}

std::vector<GoldAlignment> as_gold(std::span<const Alignment> alignments) {
  std::vector<GoldAlignment> gold;
  for (const Alignment& alignment : alignments) gold.push_back({.sure = alignment, .possible = {}});
  return gold;
}

double AlignmentScore::precision() const noexcept {
  return proposed == 0 ? 0 : static_cast<double>(matched_possible) / static_cast<double>(proposed);
}
double AlignmentScore::recall() const noexcept {
  return sure == 0 ? 0 : static_cast<double>(matched_sure) / static_cast<double>(sure);
}
double AlignmentScore::error_rate() const noexcept {
  return proposed + sure == 0 ? 0
                              : 1 - static_cast<double>(matched_sure + matched_possible) /
                                        static_cast<double>(proposed + sure);
}

std::string AlignmentScore::to_string() const {
  char line[160];
  std::snprintf(line, sizeof line, "AER = %.3f precision = %.3f recall = %.3f (%lld proposed, %lld sure)",
                error_rate(), precision(), recall(), static_cast<long long>(proposed),
                static_cast<long long>(sure));
  return line;
}

AlignmentScore score_alignments(std::span<const Alignment> proposed, std::span<const GoldAlignment> gold) {
  if (proposed.size() != gold.size()) {
    throw InvalidArgument("score_alignments", "proposed",
                          std::to_string(gold.size()) + " sentences, as in gold",
                          std::to_string(proposed.size()));
  }
  AlignmentScore score;
  for (std::size_t i = 0; i < gold.size(); ++i) {
    const std::set<AlignmentLink> links(proposed[i].begin(), proposed[i].end());
    const std::set<AlignmentLink> sure(gold[i].sure.begin(), gold[i].sure.end());
    std::set<AlignmentLink> possible(gold[i].possible.begin(), gold[i].possible.end());
    possible.insert(sure.begin(), sure.end());
    score.proposed += static_cast<std::int64_t>(links.size());
    score.sure += static_cast<std::int64_t>(sure.size());
    for (const AlignmentLink& link : links) {
      score.matched_sure += sure.contains(link);
      score.matched_possible += possible.contains(link);
    }
  }
  return score;
}

namespace {

std::size_t count_words(std::span<const std::int32_t> word, std::size_t pieces, const char* argument) {
  if (word.size() != pieces) {
    throw InvalidArgument("merge_pieces", argument, std::to_string(pieces) + " indices",
                          std::to_string(word.size()));
  }
  std::int32_t last = 0;
  for (const std::int32_t index : word) {
    if (index < last || index > last + 1) {
      throw InvalidArgument("merge_pieces", argument, "indices from 0 that rise by at most 1",
                            std::to_string(index) + " after " + std::to_string(last));
    }
    last = index;
  }
  return word.empty() ? 0 : static_cast<std::size_t>(last) + 1;
}

}  // namespace

AlignmentWeights merge_pieces(const AlignmentWeights& pieces, std::span<const std::int32_t> target_word,
                              std::span<const std::int32_t> source_word) {
  if (pieces.weights.size() != pieces.target_len * pieces.source_len) {
    throw InvalidArgument("merge_pieces", "pieces.weights",
                          std::to_string(pieces.target_len * pieces.source_len) + " weights",
                          std::to_string(pieces.weights.size()));
  }
  AlignmentWeights words;
  words.target_len = count_words(target_word, pieces.target_len, "target_word");
  words.source_len = count_words(source_word, pieces.source_len, "source_word");
  std::vector<double> sums(words.target_len * words.source_len);
  std::vector<int> rows(words.target_len);
  for (std::size_t t = 0; t < pieces.target_len; ++t) {
    const auto row = static_cast<std::size_t>(target_word[t]);
    ++rows[row];
    for (std::size_t s = 0; s < pieces.source_len; ++s) {
      sums[row * words.source_len + static_cast<std::size_t>(source_word[s])] += pieces.at(t, s);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    words.weights.push_back(static_cast<float>(sums[i] / rows[i / words.source_len]));
  }
  return words;
}

Alignment hard_alignment(const AlignmentWeights& words, const HardAlignmentOptions& options) {
  if (words.weights.size() != words.target_len * words.source_len || options.num_targets > words.target_len ||
      options.num_sources > words.source_len) {
    throw InvalidArgument("hard_alignment", "options",
                          "num_targets at most " + std::to_string(words.target_len) +
                              ", num_sources at most " + std::to_string(words.source_len) + ", and " +
                              std::to_string(words.target_len * words.source_len) + " words.weights",
                          std::to_string(options.num_targets) + ", " + std::to_string(options.num_sources) +
                              ", and " + std::to_string(words.weights.size()));
  }
  Alignment alignment;
  for (std::size_t t = 0; t < options.num_targets && words.source_len > 0; ++t) {
    const auto row = words.weights.begin() + static_cast<std::ptrdiff_t>(t * words.source_len);
    const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(words.source_len));
    const auto source = static_cast<std::size_t>(best - row);
    if (source < options.num_sources && *best >= options.threshold) {
      alignment.push_back({static_cast<int>(source), static_cast<int>(t)});
    }
  }
  return alignment;
}

}  // namespace fovea::text
