#include "text/pipeline/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

utf8proc_int32_t as_point(char32_t point) {
  return static_cast<utf8proc_int32_t>(point);
}

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(as_point(point));
}

int combining_class(char32_t point) {
  return static_cast<int>(utf8proc_get_property(as_point(point))->combining_class);
}

struct Ordered {
  Change change;
  int combining = 0;
};

// Decomposes every character, and sorts the marks behind each starter by their classes.
std::vector<Ordered> decomposed(std::string_view text, bool compatibility) {
  const auto option = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                     (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<Ordered> result;
  std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18 characters
  std::size_t sorted = 0;
  const auto sort_pending = [&] {
    std::stable_sort(result.begin() + static_cast<std::ptrdiff_t>(sorted), result.end(),
                     [](const Ordered& a, const Ordered& b) { return a.combining < b.combining; });
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    at += static_cast<std::size_t>(point.bytes);
    const auto count = utf8proc_decompose_char(as_point(point.value), parts.data(),
                                               static_cast<utf8proc_ssize_t>(parts.size()), option, nullptr);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const auto part = static_cast<char32_t>(parts[static_cast<std::size_t>(i)]);
      const int combining = combining_class(part);
      if (combining == 0) {
        sort_pending();
        sorted = result.size() + 1;
      }
      result.push_back({{part, i > 0 ? 1 : 0}, combining});
    }
  }
  sort_pending();
  return result;
}

// The character that is canonically equivalent to the two, if there is one.
std::optional<char32_t> composed(char32_t first, char32_t second) {
  std::array<utf8proc_int32_t, 2> pair{as_point(first), as_point(second)};
  const auto option = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (utf8proc_normalize_utf32(pair.data(), 2, option) != 1) return std::nullopt;
  return static_cast<char32_t>(pair[0]);
}

std::vector<Change> recomposed(const std::vector<Ordered>& parts) {
  std::vector<Change> result;
  std::optional<std::size_t> starter;  // its place in the result
  int last = -1;                       // the class of the last mark behind it that stayed; -1: there is none
  for (const auto& [change, combining] : parts) {
    if (starter && (last < 0 || last < combining)) {
      Change& base = result[*starter];
      if (const auto whole = composed(base.point, change.point)) {
        base = {*whole, base.added + change.added - 1};
        continue;
      }
    }
    if (combining == 0) {
      starter = result.size();
      last = -1;
    } else {
      last = combining;
    }
    result.push_back(change);
  }
  return result;
}

}  // namespace

bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_numeric(char32_t point) {
  const auto of = category(point);
  return of == UTF8PROC_CATEGORY_ND || of == UTF8PROC_CATEGORY_NL || of == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t point) {
  if (point < 0x80)
    return point > 0x20 && point < 0x7F && !(point >= '0' && point <= '9') &&
           !(point >= 'A' && point <= 'Z') && !(point >= 'a' && point <= 'z');
  const auto of = category(point);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO;
}

bool is_control(char32_t point) {
  const auto of = category(point);
  return of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF || of == UTF8PROC_CATEGORY_CO;
}

bool is_nonspacing_mark(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(char32_t point) {
  const auto of = category(point);
  return of >= UTF8PROC_CATEGORY_MN && of <= UTF8PROC_CATEGORY_ME;
}

bool is_cjk_ideograph(char32_t point) {
  // The gap from U+2B820 to U+2B91F is a slip of the first implementation, which all others keep.
  return (point >= 0x4E00 && point <= 0x9FFF) || (point >= 0x3400 && point <= 0x4DBF) ||
         (point >= 0x20000 && point <= 0x2A6DF) || (point >= 0x2A700 && point <= 0x2B81F) ||
         (point >= 0x2B920 && point <= 0x2CEAF) || (point >= 0xF900 && point <= 0xFAFF) ||
         (point >= 0x2F800 && point <= 0x2FA1F);
}

void append_lower_case(std::vector<Change>& changes, char32_t point) {
  if (point == U'\u0130') {  // the one capital whose lower case is two characters
    changes.push_back({U'i', 0});
    changes.push_back({U'\u0307', 1});
    return;
  }
  changes.push_back({static_cast<char32_t>(utf8proc_tolower(as_point(point))), 0});
}

std::vector<Change> normal_form(std::string_view text, NormalForm form) {
  const bool compatibility = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const std::vector<Ordered> parts = decomposed(text, compatibility);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) return recomposed(parts);
  std::vector<Change> result;
  result.reserve(parts.size());
  for (const Ordered& part : parts) result.push_back(part.change);
  return result;
}

std::vector<std::size_t> grapheme_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  utf8proc_int32_t state = 0, before = -1;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (before >= 0 && utf8proc_grapheme_break_stateful(before, as_point(point.value), &state))
      ends.push_back(at);
    before = as_point(point.value);
    at += static_cast<std::size_t>(point.bytes);
  }
  if (!text.empty()) ends.push_back(text.size());
  return ends;
}

}  // namespace fovea::text::pipeline
