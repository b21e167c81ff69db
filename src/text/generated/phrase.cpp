#include "text/generated/phrase.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace fovea::text::generated {
namespace {

void add_units(Word& word, const std::vector<Unit>& units) {
  word.units.insert(word.units.end(), units.begin(), units.end());
}

// The elided form of `word` before a vowel, or nothing.
std::string_view elided(std::string_view word, std::string_view next) {
  if (word == "si") return next == "il" || next == "ils" ? "s'" : "";
  if (!starts_with_vowel(next)) return {};
  constexpr WordPair kElided[] = {{"le", "l'"}, {"la", "l'"}, {"de", "d'"},  {"que", "qu'"}, {"je", "j'"},
                                  {"ne", "n'"}, {"me", "m'"}, {"ce", "cet"}, {"ma", "mon"}};
  for (const auto& [full, form] : kElided) {
    if (word == full) return form;
  }
  return {};
}

// What preposition and article make together, or nothing. "de" swallows the indefinite article: près de
// voitures.
std::string_view contracted(std::string_view word, std::string_view next) {
  if (word == "de") {
    if (next == "le") return "du";
    if (next == "les") return "des";
    if (next == "des" || next == "de") return "de";
  }
  if (word == "à") {
    if (next == "le") return "au";
    if (next == "les") return "aux";
  }
  return {};
}

void capitalise(std::string& text) {
  if (text.starts_with("à")) {
    text.replace(0, std::string_view("à").size(), "À");
  } else if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
}

std::string join(const Words& words) {
  std::string line;
  for (const Word& word : words) {
    if (!line.empty()) line += ' ';
    line += word.text;
  }
  return line;
}

bool share_unit(const Word& a, const Word& b) {
  return std::any_of(a.units.begin(), a.units.end(), [&](Unit unit) {
    return std::find(b.units.begin(), b.units.end(), unit) != b.units.end();
  });
}

}  // namespace

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void append(Phrase& phrase, const Phrase& more) {
  append(phrase.english, more.english);
  append(phrase.french, more.french);
}

void append_words(Words& words, std::string_view text, const std::vector<Unit>& units) {
  for (const std::string_view word : split_words(text)) words.push_back({std::string(word), units});
}

bool starts_with_vowel(std::string_view french) {
  if (french.empty()) return false;
  constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "h", "à", "â", "é",
                                          "è", "ê", "ô", "î", "A", "E", "I", "O", "U"};
  return std::any_of(std::begin(kVowels), std::end(kVowels),
                     [&](std::string_view vowel) { return french.starts_with(vowel); });
}

Words euphony(const Words& french) {
  Words result;
  for (std::size_t i = 0; i < french.size(); ++i) {
    Word word = french[i];
    const std::string_view next = i + 1 < french.size() ? std::string_view(french[i + 1].text) : "";
    const std::string_view after = i + 2 < french.size() ? std::string_view(french[i + 2].text) : "";
    const bool article_elides = next == "le" && starts_with_vowel(after);
    if (const auto form = contracted(word.text, next); !form.empty() && !article_elides) {
      word.text = form;
      add_units(word, french[i + 1].units);
      ++i;
      if (const auto shorter = elided(word.text, after); !shorter.empty()) word.text = shorter;
    } else if (const auto shorter = elided(word.text, next); !shorter.empty()) {
      word.text = shorter;
    }
    result.push_back(std::move(word));
  }
  return result;
}

std::string agreeing(std::string_view masculine, Gender gender, bool plural) {
  std::string form(masculine);
  if (gender == Gender::feminine) form += 'e';
  if (plural && !form.ends_with('s')) form += 's';
  return form;
}

Sentence finish(Phrase phrase, Unit full_stop) {
  phrase.french = euphony(phrase.french);
  phrase.english.push_back({".", {full_stop}});
  phrase.french.push_back({".", {full_stop}});
  capitalise(phrase.english.front().text);
  capitalise(phrase.french.front().text);
  Sentence sentence;
  sentence.pair = {join(phrase.english), join(phrase.french)};
  sentence.num_source_words = static_cast<int>(phrase.english.size());
  for (std::size_t s = 0; s < phrase.english.size(); ++s) {
    for (std::size_t t = 0; t < phrase.french.size(); ++t) {
      if (share_unit(phrase.english[s], phrase.french[t])) {
        sentence.alignment.push_back({static_cast<int>(s), static_cast<int>(t)});
      }
    }
  }
  return sentence;
}

}  // namespace fovea::text::generated
