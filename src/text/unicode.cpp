#include "text/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "text/utf8.h"

namespace fovea::text {
namespace {

struct Run {
  std::uint32_t first, last, step;
  std::int32_t delta;
};
constexpr Run kLower[] = {
#include "text/lower_case_table.inc"
};

char32_t lower(char32_t point) {
  const auto after = std::upper_bound(std::begin(kLower), std::end(kLower), point,
                                      [](char32_t value, const Run& run) { return value < run.first; });
  if (after == std::begin(kLower)) return point;
  const Run& run = *std::prev(after);
  if (point > run.last || (point - run.first) % run.step != 0) return point;
  return static_cast<char32_t>(static_cast<std::int64_t>(point) + run.delta);
}

bool has_upper(char32_t point) {
  return std::any_of(std::begin(kLower), std::end(kLower), [&](const Run& run) {
    const auto upper = static_cast<std::int64_t>(point) - run.delta;
    return upper >= run.first && upper <= run.last && (upper - run.first) % run.step == 0;
  });
}

bool is_cased(char32_t point) {
  return lower(point) != point || point == U'ς' || has_upper(point);
}

// What may stand between a letter and the end of its word without ending it, for the rule of the final sigma.
bool is_case_ignorable(char32_t point) {
  return point == U'\'' || point == U'.' || point == U':' || point == U'^' || point == U'`' ||
         point == U'’' || point == U'‘' || point == U'·' || point == U'\u00AD' ||
         (point >= 0x300 && point <= 0x36F);
}

// A capital sigma at the end of a word becomes a final one.
bool is_final_sigma(const std::vector<char32_t>& points, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(points[before - 1])) --before;
  if (before == 0 || !is_cased(points[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < points.size() && is_case_ignorable(points[after])) ++after;
  return after == points.size() || !is_cased(points[after]);
}

constexpr char32_t kBadByte = 0x80000000;  // marks a byte that is no UTF-8, in its low 8 bits

}  // namespace

std::string lower_case(std::string_view text) {
  std::vector<char32_t> points;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    points.push_back(point.bytes ? point.value : kBadByte | static_cast<unsigned char>(text[at]));
    at += static_cast<std::size_t>(std::max(point.bytes, 1));
  }
  std::string result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i] & kBadByte) {
      result.push_back(static_cast<char>(static_cast<unsigned char>(points[i])));
    } else if (points[i] == U'İ') {
      result += "i\u0307";  // the one capital whose lower case is two code points
    } else if (points[i] == U'Σ' && is_final_sigma(points, i)) {
      append_utf8(result, U'ς');
    } else {
      append_utf8(result, lower(points[i]));
    }
  }
  return result;
}

bool is_unicode_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 ||
         point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
         point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

std::vector<std::string_view> split_unicode(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  const auto close = [&](std::size_t end) {
    if (end > begin) words.push_back(text.substr(begin, end - begin));
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const auto bytes = static_cast<std::size_t>(std::max(point.bytes, 1));
    if (point.bytes && is_unicode_space(point.value)) {
      close(at);
      begin = at + bytes;
    }
    at += bytes;
  }
  close(text.size());
  return words;
}

}  // namespace fovea::text
