// Parallel text that most machines already have: the compiled message catalogues (.mo) of GNU gettext. Their
// keys are English, their values the translations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/corpus.h"
#include "fovea/text/generated.h"

namespace fovea::text {

/// One entry of a catalogue, in the catalogue's own bytes.
struct GettextMessage {
  std::string context;                    ///< msgctxt; empty without one
  std::string singular, plural;           ///< msgid and msgid_plural (empty without one)
  std::vector<std::string> translations;  ///< one, or one for each plural form
};

struct GettextCatalogue {
  std::string charset;                   ///< of the header entry, upper-case; empty without one
  std::string plural_forms;              ///< of the header entry: "nplurals=2; plural=(n > 1);"
  std::vector<GettextMessage> messages;  ///< without the header entry
};

/// Parses the bytes of a .mo file of either byte order. `name` is used in errors. Throws FileError with the
/// offset when a table or a string lies outside the file or is not ended by NUL.
GettextCatalogue parse_mo(std::string_view bytes, const std::string& name);

struct GettextOptions {
  std::string language;  ///< "fr", "pt_BR"
  /// Folders that hold <language>/LC_MESSAGES/*.mo; folders that do not exist are skipped.
  std::vector<std::filesystem::path> roots{"/usr/share/locale", "/usr/share/locale-langpack"};
  /// The largest number of blank-separated words on each side of a pair. Longer pairs are skipped and
  /// counted.
  std::int64_t max_words = 60;
};

/// How many entries were kept or skipped, and why. Every pair of paragraphs is in exactly one of the counts.
struct GettextReport {
  std::int64_t catalogues = 0;
  std::int64_t skipped_catalogues = 0;  ///< damaged, or neither UTF-8 nor Latin-1 nor ASCII
  std::int64_t kept = 0;
  std::int64_t skipped_duplicate =
      0;  ///< a source string that occurred before: its first translation is kept
  std::int64_t skipped_untranslated = 0;  ///< an empty side, or both sides equal
  std::int64_t skipped_lines = 0;         ///< the two sides have different numbers of paragraphs
  std::int64_t skipped_junk = 0;          ///< fewer letters than other characters: formats, paths, options
  std::int64_t skipped_too_long = 0;
  std::int64_t skipped_bad_bytes = 0;  ///< not valid in the catalogue's charset, or control characters
  std::string to_string() const;
};

struct GettextResult {
  ParallelCorpus corpus;
  GettextReport report;
};

/// All pairs of the catalogues of one language, English to that language, in the order of roots, catalogue
/// names and entries. The singular is paired with the first plural form, and the plural with the last; for a
/// language with one form, only the plural. An entry of several paragraphs gives one pair for each paragraph,
/// if both sides have as many. A line break inside a paragraph becomes a blank, since the two sides break at
/// different words. Accelerator marks ("_File", "E&xit", "(_F)") and the old context prefix ("keyboard
/// label|Home") are removed. Throws FileError with the searched folders when there is no catalogue. Throws
/// InvalidArgument for a language that is not a locale name.
GettextResult gettext_corpus(const GettextOptions& options);

/// The pairs whose source falls into `split`, by split_of on the source in lower case, so that "Open file"
/// and "Open File" stay together.
ParallelCorpus select_split(const ParallelCorpus& corpus, Split split);

}  // namespace fovea::text
