#include "text/gettext/clean.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::gettext {
namespace {

bool is_ascii_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool is_word_byte(char c) {
  return is_ascii_alphanumeric(c) || static_cast<unsigned char>(c) >= 0x80;
}

// The position of `mark` if it can be an accelerator: it occurs once, before a letter or digit.
std::size_t find_accelerator(std::string_view text, char mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos || text.find(mark, at + 1) != std::string_view::npos)
    return std::string_view::npos;
  if (at + 1 >= text.size() || !is_word_byte(text[at + 1])) return std::string_view::npos;
  // "&lt;" is no accelerator.
  std::size_t end = at + 1;
  while (end < text.size() && is_ascii_alphanumeric(text[end])) ++end;
  return mark == '&' && end < text.size() && text[end] == ';' ? std::string_view::npos : at;
}

std::string_view word_around(std::string_view text, std::size_t at) {
  const std::size_t begin = text.rfind(' ', at), end = text.find(' ', at);
  const std::size_t first = begin == std::string_view::npos ? 0 : begin + 1;
  return text.substr(first, (end == std::string_view::npos ? text.size() : end) - first);
}

void erase_mark(std::string& text, std::size_t at) {
  // "文件(_F)": the whole bracket is the accelerator.
  const bool bracket = at > 0 && text[at - 1] == '(' && at + 2 < text.size() && text[at + 2] == ')';
  if (bracket && at > 1) {
    text.erase(at - 1, 4);
    while (text.ends_with(' ')) text.pop_back();
  } else {
    text.erase(at, 1);
  }
}

bool begins_word(std::string_view text, std::size_t at) {
  return at == 0 || !is_word_byte(text[at - 1]);
}

// A mark inside a word ("E_xit") counts only if the other side has one too, in a different word: "max_size"
// on both sides is an identifier.
void remove_accelerator(SentencePair& pair, char mark) {
  constexpr std::size_t kNone = std::string_view::npos;
  const std::size_t source = find_accelerator(pair.source, mark),
                    target = find_accelerator(pair.target, mark);
  const bool same_word = source != kNone && target != kNone &&
                         word_around(pair.source, source) == word_around(pair.target, target);
  const auto is_mark = [&](std::string_view text, std::size_t at, std::size_t other) {
    return at != kNone && (begins_word(text, at) || (other != kNone && !same_word));
  };
  const bool from_source = is_mark(pair.source, source, target),
             from_target = is_mark(pair.target, target, source);
  if (from_source) erase_mark(pair.source, source);
  if (from_target) erase_mark(pair.target, target);
}

void remove_context_prefix(SentencePair& pair) {
  const std::size_t bar = pair.source.find('|');
  const bool one = bar != std::string::npos && bar > 0 && bar + 1 < pair.source.size() &&
                   pair.source.find('|', bar + 1) == std::string::npos;
  if (one && pair.source[bar - 1] != ' ' && pair.source[bar + 1] != ' ' &&
      pair.target.find('|') == std::string::npos) {
    pair.source.erase(0, bar + 1);
  }
}

// Every character beyond Latin-1's symbols counts as a letter, except blocks of punctuation, spaces and
// symbols. Exact classes would need a table, which a rule of thumb is not worth.
bool is_letter(char32_t point) {
  if (point < 0x80) return (point >= 'A' && point <= 'Z') || (point >= 'a' && point <= 'z');
  if (point < 0xC0) return point == 0xAA || point == 0xB5 || point == 0xBA;
  return point != 0xD7 && point != 0xF7 && !(point >= 0x2000 && point < 0x2C00) &&
         !(point >= 0x3000 && point < 0x3040) && !(point >= 0xE000 && point < 0xF900);
}

}  // namespace

std::vector<std::string> paragraphs(std::string_view text) {
  std::vector<std::string> result;
  bool open = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const auto words = split_words(line);
    if (words.empty() || line.front() == ' ' || line.front() == '\t') open = false;
    if (!words.empty()) {
      if (!open) result.emplace_back();
      open = true;
      for (const std::string_view word : words) {
        if (!result.back().empty()) result.back() += ' ';
        result.back() += word;
      }
    }
    begin = end + 1;
  }
  return result;
}

void remove_marks(SentencePair& pair) {
  remove_context_prefix(pair);
  remove_accelerator(pair, '_');
  remove_accelerator(pair, '&');
}

bool is_mostly_letters(std::string_view text) {
  std::int64_t letters = 0, others = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    at += static_cast<std::size_t>(std::max(point.bytes, 1));
    if (is_unicode_space(point.value)) continue;
    ++(is_letter(point.value) ? letters : others);
  }
  return letters > 0 && letters >= others;
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
  });
}

}  // namespace fovea::text::gettext
