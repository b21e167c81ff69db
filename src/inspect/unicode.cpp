#include "inspect/unicode.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/utf8.h"

namespace fovea::inspect {
namespace {

struct Range {
  char32_t first, last;
};

// From UnicodeData's Mn, Me and Cf classes: the scripts whose marks occur in translation corpora.
constexpr Range kCombining[] = {{0x0300, 0x036F}, {0x0483, 0x0489},  {0x0591, 0x05BD}, {0x05BF, 0x05BF},
                                {0x05C1, 0x05C2}, {0x0610, 0x061A},  {0x064B, 0x065F}, {0x0670, 0x0670},
                                {0x06D6, 0x06DC}, {0x0900, 0x0902},  {0x093A, 0x093A}, {0x093C, 0x093C},
                                {0x0941, 0x0948}, {0x094D, 0x094D},  {0x0951, 0x0957}, {0x0E31, 0x0E31},
                                {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E},  {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
                                {0x20D0, 0x20FF}, {0x302A, 0x302D},  {0x3099, 0x309A}, {0xFE00, 0xFE0F},
                                {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF}};

// From EastAsianWidth's W and F classes: whole blocks, and the emoji among the symbols.
constexpr Range kDoubleWidth[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x23F0, 0x23F0},   {0x23F3, 0x23F3},
    {0x25FD, 0x25FE},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267F, 0x267F},   {0x2693, 0x2693},
    {0x26A1, 0x26A1},   {0x26AA, 0x26AB},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x26CE, 0x26CE},
    {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F3},   {0x26F5, 0x26F5},   {0x26FA, 0x26FA},
    {0x26FD, 0x26FD},   {0x2705, 0x2705},   {0x270A, 0x270B},   {0x2728, 0x2728},   {0x274C, 0x274C},
    {0x274E, 0x274E},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27B0, 0x27B0},
    {0x27BF, 0x27BF},   {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},   {0x2E80, 0x303E},
    {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},
    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
    {0x1F18E, 0x1F18E}, {0x1F191, 0x1F19A}, {0x1F200, 0x1F265}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
    {0x1F7E0, 0x1F7F0}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

// Hebrew to Arabic Extended-A, the presentation forms, and the blocks of ancient and African scripts.
constexpr Range kRightToLeft[] = {
    {0x0590, 0x08FF}, {0xFB1D, 0xFDFF}, {0xFE70, 0xFEFE}, {0x10800, 0x10FFF}, {0x1E800, 0x1EFFF}};

constexpr Range kControl[] = {{0x00, 0x1F},      {0x7F, 0x9F},     {0xAD, 0xAD},     {0x061C, 0x061C},
                              {0x180E, 0x180E},  {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                              {0xD800, 0xDFFF},  {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xFFFE, 0xFFFF},
                              {0xE0000, 0xE007F}};

template <std::size_t n>
bool within(const Range (&ranges)[n], char32_t code) {
  const auto* after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                       [](char32_t c, const Range& range) { return c < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

struct Family {
  std::u32string_view composed;
  std::string_view bases;
};

// A line a mark: grave, acute, circumflex, tilde, diaeresis, ring, cedilla, macron, breve, ogonek, dot,
// caron, double acute, comma, stroke.
constexpr Family kFamilies[] = {{U"ÀÈÌÒÙàèìòù", "AEIOUaeiou"},
                                {U"ÁÉÍÓÚÝáéíóúýĆćĹĺŃńŔŕŚśŹź", "AEIOUYaeiouyCcLlNnRrSsZz"},
                                {U"ÂÊÎÔÛâêîôûĈĉĜĝĤĥĴĵŜŝŴŵŶŷ", "AEIOUaeiouCcGgHhJjSsWwYy"},
                                {U"ÃÑÕãñõĨĩŨũ", "ANOanoIiUu"},
                                {U"ÄËÏÖÜäëïöüÿŸ", "AEIOUaeiouyY"},
                                {U"ÅåŮů", "AaUu"},
                                {U"ÇçĢģĶķĻļŅņŖŗŞşŢţ", "CcGgKkLlNnRrSsTt"},
                                {U"ĀāĒēĪīŌōŪū", "AaEeIiOoUu"},
                                {U"ĂăĔĕĞğĬĭŎŏŬŭ", "AaEeGgIiOoUu"},
                                {U"ĄąĘęĮįŲų", "AaEeIiUu"},
                                {U"ĊċĖėĠġİŻż", "CcEeGgIZz"},
                                {U"ČčĎďĚěĽľŇňŘřŠšŤťŽž", "CcDdEeLlNnRrSsTtZz"},
                                {U"ŐőŰű", "OoUu"},
                                {U"ȘșȚț", "SsTt"},
                                {U"ØøĐđĦħŁłŦŧ", "OoDdHhLlTt"}};

constexpr std::pair<char32_t, std::string_view> kAscii[] = {
    {0xA0, " "},   {U'¡', "!"},   {U'«', "<<"},   {U'°', "o"},         {U'´', "'"},    {U'·', "."},
    {U'»', ">>"},  {U'¿', "?"},   {U'Æ', "AE"},   {U'×', "x"},         {U'Þ', "Th"},   {U'ß', "ss"},
    {U'æ', "ae"},  {U'ð', "d"},   {U'þ', "th"},   {U'ı', "i"},         {U'Œ', "OE"},   {U'œ', "oe"},
    {U'ſ', "s"},   {0x2010, "-"}, {0x2011, "-"},  {0x2013, "-"},       {0x2014, "--"}, {0x2018, "'"},
    {0x2019, "'"}, {0x201A, ","}, {0x201C, "\""}, {0x201D, "\""},      {0x201E, "\""}, {0x2026, "..."},
    {0x202F, " "}, {0x2039, "<"}, {0x203A, ">"},  {0x2205, "(empty)"}, {0x2581, "_"}};

}  // namespace

std::vector<char32_t> decode_utf8(std::string_view text) {
  std::vector<char32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = utf8_character(text, at);
    codes.push_back(character.code);
    at += character.bytes;
  }
  return codes;
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (const char32_t code : decode_utf8(text)) append_utf8(valid, code);
  return valid;
}

bool is_control(char32_t code) {
  return within(kControl, code);
}

bool is_right_to_left(char32_t code) {
  return within(kRightToLeft, code);
}

int width_of(char32_t code) {
  if (code < 0x300) return is_control(code) ? 0 : 1;
  if (within(kCombining, code) || is_control(code)) return 0;
  return within(kDoubleWidth, code) ? 2 : 1;
}

namespace {

constexpr char32_t kEmptySet = 0x2205;

// The symbol that is drawn instead of a control character.
char32_t picture_of(char32_t code) {
  if (code < 0x20) return code + 0x2400;
  if (code == 0x7F) return 0x2421;
  return is_control(code) ? kReplacement : code;
}

bool joins(char32_t code) {
  return code == 0x200C || code == 0x200D;
}

// At most `most` marks on a letter, and none before the first letter, where it would land on whatever is
// drawn to the left.
class Shown {
 public:
  explicit Shown(int most) : most_(most), marks_(most) {}
  void add(char32_t code) {
    if (width_of(code) > 0) {
      marks_ = 0;
    } else if (++marks_ > most_) {
      return;
    }
    codes_.push_back(code);
  }
  std::vector<char32_t> take() { return std::move(codes_); }

 private:
  int most_, marks_;
  std::vector<char32_t> codes_;
};

}  // namespace

std::vector<char32_t> visible(std::string_view text) {
  Shown shown(2);
  for (const char32_t code : decode_utf8(text)) shown.add(picture_of(code));
  std::vector<char32_t> codes = shown.take();
  if (codes.empty()) codes.push_back(kEmptySet);
  return codes;
}

std::string writable(std::string_view text, Lines lines) {
  Shown shown(4);
  std::string written;
  const auto flush = [&] {
    for (const char32_t code : shown.take()) append_utf8(written, code);
  };
  for (const char32_t code : decode_utf8(text)) {
    if (code == U'\n' && lines == Lines::several) {
      flush();
      written += '\n';
      shown = Shown(4);
    } else {
      shown.add(joins(code) ? code : picture_of(code));
    }
  }
  flush();
  if (written.empty()) append_utf8(written, kEmptySet);
  return written;
}

char base_letter(char32_t code) {
  if (code < 0xC0 || code > 0x21B) return 0;
  for (const Family& family : kFamilies) {
    const std::size_t at = family.composed.find(code);
    if (at != std::u32string_view::npos) return family.bases[at];
  }
  return 0;
}

std::string to_ascii(char32_t code) {
  if (code >= 0x20 && code < 0x7F) return {static_cast<char>(code)};
  if (const char base = base_letter(code); base != 0) return {base};
  for (const auto& [from, to] : kAscii) {
    if (from == code) return std::string(to);
  }
  return width_of(code) == 0 ? "" : "?";
}

}  // namespace fovea::inspect
