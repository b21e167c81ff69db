#include "world.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

namespace trace_example {
namespace {

using fovea::PhiloxStream;
using fovea::text::Split;
using Words = std::vector<std::string>;

constexpr int kNumbers = 16;
const Words said{"opened", "closed", "moved", "sent", "lost",  "found",   "read",  "wrote",
                 "at",     "to",     "from",  "with", "after", "until",   "in",    "of",
                 "slot",   "level",  "retry", "port", "user",  "channel", "queue", "again"};
const Words kinds{"set", "random", "log", "helper", "call", "argument"};

std::uint32_t below(PhiloxStream& random, std::size_t bound) {
  return random.next_below(static_cast<std::uint32_t>(bound));
}

// What a place of a message can be: one of several texts.
using Values = std::set<std::string>;
using Message = std::vector<Values>;

bool can_be(const Message& message, const Words& words) {
  if (message.size() != words.size()) return false;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (!message[i].contains(words[i])) return false;
  return true;
}

// A place of a template: a word, or "$text", "$number".
bool is_place(const std::string& word) {
  return word[0] == '$';
}

struct Helper {
  std::string name;
  Words form;
};

class Writer {
 public:
  Writer(PhiloxStream& random, Split split) : random_(random), split_(split) {
    for (Words* names : {&texts_, &texts_, &texts_, &numbers_, &numbers_}) names->push_back(new_name());
    for (int i = 0; i < 4; ++i) values_.push_back(new_name());
    // Two forms of the same words in another order, and one that shares a word with them.
    const Words words = random_.draw_from(said, 4);
    forms_ = {{words[0], "$text", words[1], "$number"},
              {words[0], "$number", words[1], "$text"},
              {words[0], words[2], "$text"}};
    helpers_ = {{new_name(), {words[0], "$text", words[3]}}, {new_name(), {words[0], "$text", words[1]}}};
  }

  Program write(int lines) {
    for (const Helper& helper : helpers_) write_helper(helper);
    for (const std::string& name : texts_) assign_text(name);
    for (const std::string& name : numbers_) assign_number(name);
    while (static_cast<int>(program_.lines.size()) < lines) {
      const std::uint32_t kind = below(random_, 12);
      if (kind < 3) {
        assign_text(any(texts_));
      } else if (kind < 4) {
        assign_number(any(numbers_));
      } else if (kind < 9) {
        write_log(forms_[below(random_, forms_.size())]);
      } else {
        write_call(helpers_[below(random_, helpers_.size())]);
      }
    }
    return program_;
  }

  // Draws the line that ran last, and what it wrote; false where another line could have written it, or none
  // is like it.
  bool run(Program& program) const {
    std::vector<std::size_t> writing;
    for (std::size_t i = 0; i < program.lines.size(); ++i)
      if (program.lines[i].writes) writing.push_back(i);
    if (writing.empty()) return false;
    const std::size_t wrote = writing[below(random_, writing.size())];
    program.message.clear();
    for (const Values& values : messages_[wrote])
      program.message.push_back(*std::next(values.begin(), below(random_, values.size())));
    program.wrote = static_cast<int>(wrote);
    program.through =
        program.lines[wrote].words[0] == "call" ? Program::Through::helper : Program::Through::variable;
    int possible = 0, alike = 0;
    for (const std::size_t i : writing) {
      possible += can_be(messages_[i], program.message);
      alike += forms_of_[i] == forms_of_[wrote];
    }
    return possible == 1 && alike > 1;
  }

 private:
  std::string new_name() {
    static const std::string consonants = "bdfgklmnprstvz", vowels = "aeiou";
    for (;;) {
      std::string name;
      for (std::uint32_t i = 2 + below(random_, 2); i > 0; --i) {
        name += consonants[below(random_, consonants.size())];
        name += vowels[below(random_, vowels.size())];
      }
      if (fovea::text::split_of(name) == split_ && names_.insert(name).second) return name;
    }
  }
  const std::string& any(const Words& of) { return of[below(random_, of.size())]; }

  void add(std::string source, Words words, Message message = {}, Words form = {}) {
    program_.lines.push_back({std::move(source), std::move(words), !message.empty()});
    messages_.push_back(std::move(message));
    forms_of_.push_back(std::move(form));
  }
  void assign_text(const std::string& name) {
    const std::string& value = any(values_);
    held_[name] = {value};
    add(name + " = \"" + value + "\";", {"set", name, value});
  }
  void assign_number(const std::string& name) {
    const std::uint32_t low = below(random_, kNumbers - 4), high = low + 1 + below(random_, 3);
    if (below(random_, 2) == 0) {
      held_[name] = {std::to_string(low)};
      add(name + " = " + std::to_string(low) + ";", {"set", name, std::to_string(low)});
      return;
    }
    held_[name].clear();
    for (std::uint32_t n = low; n <= high; ++n) held_[name].insert(std::to_string(n));
    add(name + " = random(" + std::to_string(low) + ", " + std::to_string(high) + ");",
        {"random", name, std::to_string(low), std::to_string(high)});
  }
  void write_helper(const Helper& helper) {
    std::string source = "void " + helper.name + "(text) { log";
    Words words{"helper", helper.name};
    for (const std::string& word : helper.form) {
      source += is_place(word) ? " << text" : " << \"" + word + "\"";
      words.push_back(is_place(word) ? "argument" : word);
    }
    add(source + "; }", words);
  }
  void write_call(const Helper& helper) {
    const std::string& name = any(texts_);
    Message message;
    for (const std::string& word : helper.form)
      message.push_back(is_place(word) ? held_[name] : Values{word});
    // The name of the helper stands where the words that it writes stand in a message: before and behind.
    add(helper.name + "(" + name + ");", {"call", helper.name, name, helper.name}, message, helper.form);
  }
  void write_log(const Words& form) {
    std::string source = "log";
    Words words{"log"};
    Message message;
    for (const std::string& word : form) {
      const bool literal = !is_place(word) || (word == "$text" && below(random_, 5) == 0);
      const std::string& what = !is_place(word) ? word
                                : literal       ? any(values_)
                                                : any(word == "$text" ? texts_ : numbers_);
      source += literal ? " << \"" + what + "\"" : " << " + what;
      words.push_back(what);
      message.push_back(literal ? Values{what} : held_[what]);
    }
    add(source + ";", words, message, form);
  }

  PhiloxStream& random_;
  Split split_;
  std::set<std::string> names_;
  Words texts_, numbers_, values_;
  std::vector<Words> forms_;
  std::vector<Helper> helpers_;
  std::map<std::string, Values> held_;
  Program program_;
  std::vector<Message> messages_;
  std::vector<Words> forms_of_;
};

}  // namespace

Program draw_program(PhiloxStream& random, int lines, Split split) {
  for (;;) {
    Writer writer(random, split);
    Program program = writer.write(lines);
    for (int attempt = 0; attempt < 10; ++attempt)
      if (writer.run(program)) return program;
  }
}

fovea::text::Vocabulary vocabulary() {
  Words all = said;
  all.insert(all.end(), kinds.begin(), kinds.end());
  for (int i = 0; i < kNumbers; ++i) all.push_back(std::to_string(i));
  for (int i = 0; i < kSlots; ++i) all.push_back("#" + std::to_string(i));
  return fovea::text::Vocabulary::of_words(all);
}

Encoded encode(const Program& program, const fovea::text::Vocabulary& vocabulary, PhiloxStream& random) {
  std::vector<std::int32_t> slots;
  for (int i = 0; i < kSlots; ++i) slots.push_back(vocabulary.id_of("#" + std::to_string(i)));
  std::map<std::string, std::int32_t> ids;
  const auto id_of = [&](const std::string& word) {
    const std::int32_t known = vocabulary.id_of(word);
    if (known != fovea::text::kUnknownId) return known;
    const auto [at, is_new] = ids.try_emplace(word, 0);
    if (is_new) {
      const std::size_t drawn = below(random, slots.size());
      at->second = slots[drawn];
      slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(drawn));
    }
    return at->second;
  };
  Encoded encoded;
  for (const Line& line : program.lines) {
    for (const std::string& word : line.words) encoded.lines.push_back(id_of(word));
    encoded.lines.resize(encoded.lines.size() + kLineWords - line.words.size(), fovea::text::kPadId);
  }
  // The first place stands for the kind of a line, so that a word has the same place in both.
  encoded.message.push_back(fovea::text::kBosId);
  for (const std::string& word : program.message) encoded.message.push_back(id_of(word));
  return encoded;
}

int nearest_words(const Program& program) {
  std::map<std::string, double> lines_with;
  for (const Line& line : program.lines)
    for (const std::string& word : std::set<std::string>(line.words.begin(), line.words.end()))
      ++lines_with[word];
  const auto weight = [&](const std::string& word) {
    const auto found = lines_with.find(word);
    return std::log((1.0 + static_cast<double>(program.lines.size())) /
                    (1.0 + (found == lines_with.end() ? 0.0 : found->second))) +
           1.0;
  };
  const std::set<std::string> asked(program.message.begin(), program.message.end());
  int best = -1;
  double largest = -1.0;
  for (int i = 0; i < static_cast<int>(program.lines.size()); ++i) {
    const Line& line = program.lines[static_cast<std::size_t>(i)];
    if (!line.writes) continue;
    double shared = 0.0, length = 0.0;
    for (const std::string& word : std::set<std::string>(line.words.begin(), line.words.end())) {
      const double w = weight(word);
      length += w * w;
      if (asked.contains(word)) shared += w * w;
    }
    const double cosine = shared / std::sqrt(length);
    if (cosine <= largest) continue;
    largest = cosine;
    best = i;
  }
  return best;
}

}  // namespace trace_example
