#include "fovea/text/word_features.h"

#include <string>

#include "core/fnv1a.h"
#include "fovea/core/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// `kind` distinguishes a word from an n-gram with the same spelling. FNV's low bits are weak, so the high
// half is folded in.
std::int32_t bucket_of(char kind, std::string_view text, std::int32_t buckets) {
  Fnv1a hash;
  hash.mix({&kind, 1});
  hash.mix(text);
  return static_cast<std::int32_t>((hash.value() ^ (hash.value() >> 32)) %
                                   static_cast<std::uint64_t>(buckets));
}

// Letters as x, capitals as X, each run once; digits as d, up to four, so that a year is told from a count.
std::string shape_of(std::string_view word, std::string_view lower) {
  std::string shape;
  std::size_t low = 0;
  int run = 0;
  for (std::size_t at = 0; at < word.size();) {
    const CodePoint point = decode_utf8(word, at);
    const auto bytes = static_cast<std::size_t>(point.bytes);
    const std::string_view letter = word.substr(at, bytes);
    // Lower-casing may change a letter's length: both are walked by code points.
    const auto low_bytes = low < lower.size() ? static_cast<std::size_t>(decode_utf8(lower, low).bytes) : 0;
    char kind = 'x';
    if (point.value >= '0' && point.value <= '9') {
      kind = 'd';
    } else if (letter != lower.substr(low, low_bytes)) {
      kind = 'X';
    } else if (point.value < 128 && !(point.value >= 'a' && point.value <= 'z')) {
      kind = static_cast<char>(point.value);
    }
    run = !shape.empty() && shape.back() == kind ? run + 1 : 1;
    if (run <= (kind == 'd' ? 4 : 1)) shape += kind;
    at += bytes;
    low += low_bytes;
  }
  return shape;
}

std::string without_digits(std::string text) {
  for (char& byte : text) {
    if (byte >= '0' && byte <= '9') byte = '0';
  }
  return text;
}

}  // namespace

std::vector<std::int32_t> word_features(std::string_view word, const WordFeatureOptions& options) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("word_features", argument, expected, got);
  };
  if (options.buckets < 1) refuse("options.buckets", "at least 1", std::to_string(options.buckets));
  if (options.longest > 0 && (options.shortest < 1 || options.shortest > options.longest))
    refuse("options.shortest", "1 to options.longest, " + std::to_string(options.longest),
           std::to_string(options.shortest));
  if (word.empty()) refuse("word", "at least one letter", "none");
  if (find_invalid_utf8(word) != std::string_view::npos)
    refuse("word", "UTF-8", "an invalid byte at offset " + std::to_string(find_invalid_utf8(word)));

  const std::string lower = lower_case(word);
  std::vector<std::int32_t> ids{bucket_of('s', shape_of(word, lower), options.buckets),
                                bucket_of('w', lower, options.buckets)};
  const std::string marked = "<" + without_digits(lower) + ">";
  std::vector<std::size_t> starts;  // of the code points, and the end
  for (std::size_t at = 0; at < marked.size();) {
    starts.push_back(at);
    at += static_cast<std::size_t>(decode_utf8(marked, at).bytes);
  }
  starts.push_back(marked.size());
  for (int length = options.shortest; length <= options.longest; ++length) {
    const auto n = static_cast<std::size_t>(length);
    for (std::size_t i = 0; i + n < starts.size(); ++i) {
      const std::string_view gram(marked.data() + starts[i], starts[i + n] - starts[i]);
      ids.push_back(bucket_of('n', gram, options.buckets));
    }
  }
  return ids;
}

}  // namespace fovea::text
