#include "fovea/text/corpus.h"

#include <algorithm>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/files/bytes.h"
#include "fovea/text/alignment.h"
#include "text/line_reader.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

std::int64_t word_count(std::string_view line) {
  return static_cast<std::int64_t>(split_words(line).size());
}

// True if the line may be used; else it is refused or counted, as the options say.
bool accept(const LineReader& reader, const ReadOptions& options, ReadReport& report) {
  if (reader.fault() == LineFault::none) return true;
  if (options.bad_line == BadLine::refuse) reader.refuse_bad();
  ++(reader.fault() == LineFault::too_long ? report.skipped_too_long : report.skipped_bad_bytes);
  return false;
}

bool keep_pair(const SentencePair& pair, const ReadOptions& options, ReadReport& report) {
  if (is_blank(pair.source) || is_blank(pair.target)) {
    ++report.skipped_empty;
    return false;
  }
  if (options.max_words > 0 &&
      std::max(word_count(pair.source), word_count(pair.target)) > options.max_words) {
    ++report.skipped_too_long;
    return false;
  }
  ++report.kept;
  return true;
}

std::vector<std::string> split_tabs(const std::string& line) {
  std::vector<std::string> columns;
  std::size_t begin = 0;
  for (std::size_t tab = line.find('\t'); tab != std::string::npos; tab = line.find('\t', begin)) {
    columns.push_back(line.substr(begin, tab - begin));
    begin = tab + 1;
  }
  columns.push_back(line.substr(begin));
  return columns;
}

// The reason why the third column is no alignment of this pair; empty if it is one.
std::string read_links(const std::string& column, const SentencePair& pair, Alignment& links) {
  try {
    links = parse_pharaoh(column);
  } catch (const InvalidArgument& error) {
    return std::string("third column: ") + error.what();
  }
  const std::int64_t source = word_count(pair.source), target = word_count(pair.target);
  for (const AlignmentLink& link : links) {
    if (link.source >= source || link.target >= target) {
      return "third column: link " + to_pharaoh({link}) + " in a pair of " + std::to_string(source) +
             " and " + std::to_string(target) + " words";
    }
  }
  return {};
}

void check_line(const std::string& line, const char* function) {
  if (line.find_first_of(std::string_view("\t\r\n\0", 4)) != std::string::npos) {
    throw InvalidArgument(function, "corpus", "lines without tabs, line breaks and NUL", "\"" + line + "\"");
  }
}

}  // namespace

std::vector<std::string> lines_of(const ParallelCorpus& corpus, Side side) {
  std::vector<std::string> lines;
  if (side != Side::target) {
    for (const SentencePair& pair : corpus.pairs) lines.push_back(pair.source);
  }
  if (side != Side::source) {
    for (const SentencePair& pair : corpus.pairs) lines.push_back(pair.target);
  }
  return lines;
}

std::string ReadReport::to_string() const {
  std::string text = "kept " + std::to_string(kept) + " pairs";
  if (skipped() == 0) return text;
  text += ", skipped " + std::to_string(skipped()) + " (";
  bool first = true;
  const auto part = [&](std::int64_t count, const char* what) {
    if (count == 0) return;
    text += (first ? "" : ", ") + std::to_string(count) + what;
    first = false;
  };
  part(skipped_empty, " empty");
  part(skipped_too_long, " too long");
  part(skipped_bad_bytes, " with bad bytes");
  part(skipped_columns, " with wrong columns");
  return text + ")";
}

ReadResult read_parallel_files(const std::filesystem::path& source, const std::filesystem::path& target,
                               const ReadOptions& options) {
  const ProfileSpan span(reading_lines);
  LineReader sources(source, options.max_line_bytes), targets(target, options.max_line_bytes);
  ReadResult result;
  for (;;) {
    const bool more_sources = sources.next(), more_targets = targets.next();
    if (more_sources != more_targets) {
      const LineReader& shorter = more_sources ? targets : sources;
      const std::filesystem::path& shorter_file = more_sources ? target : source;
      throw FileError(shorter_file.string(), shorter.number(),
                      "ends here, but " + (more_sources ? source : target).string() + " has more lines",
                      "line");
    }
    if (!more_sources) break;
    if (!accept(sources, options, result.report) || !accept(targets, options, result.report)) continue;
    SentencePair pair{sources.line(), targets.line()};
    if (keep_pair(pair, options, result.report)) result.corpus.pairs.push_back(std::move(pair));
  }
  return result;
}

ReadResult read_tsv(const std::filesystem::path& file, const ReadOptions& options) {
  const ProfileSpan span(reading_lines);
  LineReader reader(file, options.max_line_bytes);
  ReadResult result;
  bool all_aligned = true;
  while (reader.next()) {
    if (!accept(reader, options, result.report)) continue;
    if (is_blank(reader.line())) {
      ++result.report.skipped_empty;
      continue;
    }
    std::vector<std::string> columns = split_tabs(reader.line());
    Alignment links;
    SentencePair pair;
    std::string reason;
    if (columns.size() < 2 || columns.size() > 3) {
      reason = "expected 2 or 3 columns, got " + std::to_string(columns.size());
    } else {
      pair = {std::move(columns[0]), std::move(columns[1])};
      if (columns.size() == 3) reason = read_links(columns[2], pair, links);
    }
    if (!reason.empty()) {
      if (options.bad_line == BadLine::refuse) reader.refuse(reason);
      ++result.report.skipped_columns;
      continue;
    }
    if (!keep_pair(pair, options, result.report)) continue;
    all_aligned = all_aligned && columns.size() == 3;
    result.corpus.pairs.push_back(std::move(pair));
    result.corpus.alignments.push_back(std::move(links));
  }
  if (!all_aligned) result.corpus.alignments.clear();
  return result;
}

std::vector<std::string> read_lines(const std::filesystem::path& file, const ReadOptions& options) {
  const ProfileSpan span(reading_lines);
  LineReader reader(file, options.max_line_bytes);
  std::vector<std::string> lines;
  while (reader.next()) {
    reader.refuse_bad();
    lines.push_back(reader.line());
  }
  return lines;
}

void write_tsv(const ParallelCorpus& corpus, const std::filesystem::path& file) {
  if (corpus.has_alignments() && corpus.alignments.size() != corpus.pairs.size()) {
    throw InvalidArgument("write_tsv", "corpus.alignments", std::to_string(corpus.pairs.size()) + " or none",
                          std::to_string(corpus.alignments.size()));
  }
  std::string bytes;
  for (std::size_t i = 0; i < corpus.pairs.size(); ++i) {
    check_line(corpus.pairs[i].source, "write_tsv");
    check_line(corpus.pairs[i].target, "write_tsv");
    bytes += corpus.pairs[i].source + '\t' + corpus.pairs[i].target;
    if (corpus.has_alignments()) bytes += '\t' + to_pharaoh(corpus.alignments[i]);
    bytes += '\n';
  }
  files::write_file(file, bytes);
}

void write_parallel_files(const ParallelCorpus& corpus, const std::filesystem::path& source,
                          const std::filesystem::path& target) {
  std::string sources, targets;
  for (const SentencePair& pair : corpus.pairs) {
    check_line(pair.source, "write_parallel_files");
    check_line(pair.target, "write_parallel_files");
    sources += pair.source + '\n';
    targets += pair.target + '\n';
  }
  files::write_file(source, sources);
  files::write_file(target, targets);
}

}  // namespace fovea::text
