#include <algorithm>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/text/gettext.h"
#include "text/gettext/clean.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr std::uintmax_t kMaxCatalogueBytes = std::uintmax_t{256} << 20;

enum class Charset { utf8, latin1, other };

Charset charset_of(const std::string& name) {
  if (name.empty() || name == "UTF-8" || name == "UTF8" || name == "ASCII" || name == "US-ASCII")
    return Charset::utf8;
  return name == "ISO-8859-1" || name == "ISO8859-1" || name == "LATIN1" ? Charset::latin1 : Charset::other;
}

void check_language(const std::string& language) {
  const bool good = !language.empty() && language.size() <= 32 && language[0] != '.' &&
                    std::all_of(language.begin(), language.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                             c == '_' || c == '@' || c == '.' || c == '-';
                    });
  if (!good)
    throw InvalidArgument("gettext_corpus", "language", "a locale such as fr or pt_BR",
                          "\"" + language + "\"");
}

std::vector<std::filesystem::path> catalogues_of(const GettextOptions& options) {
  std::vector<std::filesystem::path> files;
  for (const auto& root : options.roots) {
    std::vector<std::filesystem::path> of_root;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(root / options.language / "LC_MESSAGES", error), end;
         !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() == ".mo") of_root.push_back(entry->path());
    }
    std::sort(of_root.begin(), of_root.end());
    files.insert(files.end(), of_root.begin(), of_root.end());
  }
  return files;
}

class Collector {
 public:
  explicit Collector(const GettextOptions& options) : options_(options) {}

  void add_catalogue(const std::filesystem::path& file) {
    ++result_.report.catalogues;
    try {
      const GettextCatalogue catalogue = parse_mo(files::read_file(file, kMaxCatalogueBytes), file.string());
      const Charset charset = charset_of(catalogue.charset);
      if (charset == Charset::other) {
        ++result_.report.skipped_catalogues;
        return;
      }
      for (const GettextMessage& message : catalogue.messages) add_message(message, charset);
    } catch (const FileError&) {
      ++result_.report.skipped_catalogues;
    }
  }
  GettextResult take() { return std::move(result_); }

 private:
  void add_message(const GettextMessage& message, Charset charset) {
    const auto& forms = message.translations;
    if (message.plural.empty()) {
      add_texts(message.singular, forms.front(), charset);
      return;
    }
    if (forms.size() > 1) add_texts(message.singular, forms.front(), charset);
    add_texts(message.plural, forms.back(), charset);
  }

  void add_texts(const std::string& id, const std::string& translation, Charset charset) {
    const std::string target = charset == Charset::latin1 ? latin1_to_utf8(translation) : translation;
    if (find_invalid_utf8(id) != std::string::npos || find_invalid_utf8(target) != std::string::npos ||
        gettext::has_control_characters(id) || gettext::has_control_characters(target)) {
      ++result_.report.skipped_bad_bytes;
      return;
    }
    std::vector<std::string> sources = gettext::paragraphs(id), targets = gettext::paragraphs(target);
    if (targets.empty()) {
      ++result_.report.skipped_untranslated;
    } else if (sources.size() != targets.size()) {
      ++result_.report.skipped_lines;
    } else {
      for (std::size_t i = 0; i < sources.size(); ++i)
        add_pair({std::move(sources[i]), std::move(targets[i])});
    }
  }

  void add_pair(SentencePair pair) {
    gettext::remove_marks(pair);
    GettextReport& report = result_.report;
    const auto words = [](const std::string& text) {
      return static_cast<std::int64_t>(split_words(text).size());
    };
    if (is_blank(pair.source) || is_blank(pair.target) ||
        lower_case(pair.source) == lower_case(pair.target)) {
      ++report.skipped_untranslated;
    } else if (!gettext::is_mostly_letters(pair.source) || !gettext::is_mostly_letters(pair.target)) {
      ++report.skipped_junk;
    } else if (std::max(words(pair.source), words(pair.target)) > options_.max_words) {
      ++report.skipped_too_long;
    } else if (!seen_.insert(pair.source).second) {
      ++report.skipped_duplicate;
    } else {
      ++report.kept;
      result_.corpus.pairs.push_back(std::move(pair));
    }
  }

  const GettextOptions& options_;
  GettextResult result_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

std::string GettextReport::to_string() const {
  std::string text =
      "kept " + std::to_string(kept) + " pairs of " + std::to_string(catalogues) + " catalogues; skipped";
  const std::pair<std::int64_t, const char*> parts[] = {{skipped_duplicate, "duplicate"},
                                                        {skipped_untranslated, "untranslated"},
                                                        {skipped_lines, "with differing paragraphs"},
                                                        {skipped_junk, "with few letters"},
                                                        {skipped_too_long, "too long"},
                                                        {skipped_bad_bytes, "with bad bytes"},
                                                        {skipped_catalogues, "whole catalogues"}};
  const char* separator = " ";
  for (const auto& [count, what] : parts) {
    if (count == 0) continue;
    text += separator + std::to_string(count) + ' ' + what;
    separator = ", ";
  }
  return *separator == ' ' ? text + " none" : text;
}

GettextResult gettext_corpus(const GettextOptions& options) {
  check_language(options.language);
  if (options.max_words < 1) {
    throw InvalidArgument("gettext_corpus", "max_words", "1 or more", std::to_string(options.max_words));
  }
  const auto files = catalogues_of(options);
  if (files.empty()) {
    std::string searched;
    for (const auto& root : options.roots) {
      searched += (searched.empty() ? "" : ", ") + (root / options.language / "LC_MESSAGES").string();
    }
    throw FileError(searched, -1, "no gettext catalogues (*.mo) of language \"" + options.language + "\"");
  }
  Collector collector(options);
  for (const auto& file : files) collector.add_catalogue(file);
  return collector.take();
}

ParallelCorpus select_split(const ParallelCorpus& corpus, Split split) {
  ParallelCorpus selected;
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    if (split_of(lower_case(corpus.pairs[i].source)) != split) continue;
    selected.pairs.push_back(corpus.pairs[i]);
    if (corpus.has_alignments()) selected.alignments.push_back(corpus.alignments[i]);
  }
  return selected;
}

}  // namespace fovea::text
