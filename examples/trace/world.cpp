#include "world.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace trace_example {
namespace {

using fovea::PhiloxStream;
using fovea::text::Split;
using Words = std::vector<std::string>;

// A source has the placeholders {result} and {operand}. The log's words for a failure do not occur in the
// source: the network must learn which words belong to which kind.
struct Kind {
  const char* word;
  const char* source;
  Words log;
};
const std::vector<Kind> kinds{
    {"index", "{result} = table[{operand}]", {"index", "out", "of", "range"}},
    {"divide", "{result} = 100 / {operand}", {"division", "by", "zero"}},
    {"parse", "{result} = number({operand})", {"not", "a", "number"}},
    {"open", "{result} = open({operand})", {"no", "such", "file"}},
    {"send", "{result} = send({operand})", {"connection", "refused"}},
    {"follow", "{result} = {operand}.next", {"null", "reference"}},
};
// "$name" stands for the function in a log and for the variable in a user's sentence, "$failure" for the
// words of the kind.
const std::vector<Words> logs{{"error", "$failure", "in", "$name"},
                              {"$name", "failed", "$failure"},
                              {"in", "$name", "$failure"},
                              {"$failure", "thrown", "by", "$name"}};
const std::vector<Words> sayings{{"when", "i", "change", "the", "$name", "it", "stops"},
                                 {"the", "$name", "is", "wrong", "and", "nothing", "happens"},
                                 {"it", "stops", "with", "a", "long", "$name"},
                                 {"nothing", "after", "i", "gave", "a", "new", "$name"},
                                 {"my", "$name", "is", "gone"},
                                 {"i", "only", "typed", "the", "$name"}};
constexpr const char *function_word = "function", *log_word = "<log>", *said_word = "<said>";

// Words of lines, logs and users; some could be names as well ("zero", "file").
const std::set<std::string>& known_words() {
  static const std::set<std::string> words = [] {
    std::set<std::string> all{function_word, log_word, said_word};
    for (const Kind& kind : kinds) {
      all.insert(kind.word);
      all.insert(kind.log.begin(), kind.log.end());
    }
    for (const auto* forms : {&logs, &sayings})
      for (const Words& form : *forms)
        for (const std::string& word : form)
          if (word[0] != '$') all.insert(word);
    return all;
  }();
  return words;
}

std::uint32_t below(PhiloxStream& random, std::size_t bound) {
  return random.next_below(static_cast<std::uint32_t>(bound));
}

Words filled(const Words& form, const std::string& name, const Words& failure) {
  Words words;
  for (const std::string& word : form) {
    if (word == "$failure")
      words.insert(words.end(), failure.begin(), failure.end());
    else
      words.push_back(word == "$name" ? name : word);
  }
  return words;
}

std::string filled(std::string source, const std::string& result, const std::string& operand) {
  for (const auto& [place, name] : {std::pair{"{result}", result}, {"{operand}", operand}})
    source.replace(source.find(place), std::string(place).size(), name);
  return source;
}

// One of eight statements. Each kind and variable occurs once in a local function and once in the outer
// function itself.
struct Statement {
  const Kind* kind;
  std::string operand;
  bool local;
};

class Writer {
 public:
  Writer(PhiloxStream& random, Split split) : random_(random), split_(split) {
    while (kinds_.size() < 2) {
      const Kind* kind = &kinds[below(random_, kinds.size())];
      if (std::find(kinds_.begin(), kinds_.end(), kind) == kinds_.end()) kinds_.push_back(kind);
    }
    for (Words* names : {&operands_, &operands_, &results_, &results_}) names->push_back(new_name());
  }

  Program write() {
    for (int i = 0; i < kFunctions; ++i) write_function();
    const auto& [failed, kind, function, operand] = own_[below(random_, own_.size())];
    program_.failed = failed;
    program_.log = filled(logs[below(random_, logs.size())], function, kind->log);
    program_.said = filled(sayings[below(random_, sayings.size())], operand, {});
    return program_;
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
      if (known_words().contains(name) || fovea::text::split_of(name) != split_) continue;
      if (names_.insert(name).second) return name;
    }
  }

  int add(std::string source, Words words, int parent) {
    program_.lines.push_back({std::move(source), std::move(words), parent});
    return static_cast<int>(program_.lines.size()) - 1;
  }

  // In random order, so that neither position nor neighbours tell which of two equal statements is local.
  std::vector<Statement> shuffled_statements() {
    std::vector<Statement> statements;
    for (const Kind* kind : kinds_)
      for (const std::string& operand : operands_)
        for (const bool local : {false, true}) statements.push_back({kind, operand, local});
    for (std::size_t i = statements.size(); i > 1; --i)
      std::swap(statements[i - 1], statements[below(random_, i)]);
    return statements;
  }

  void write_function() {
    const std::string name = new_name();
    const int function = add("def " + name + "():", {function_word, name, name}, -1);
    for (const auto& [kind, operand, local] : shuffled_statements()) {
      const std::string inner = new_name(), result = results_[below(random_, results_.size())];
      const int inside =
          add("    def " + inner + "():" + (local ? "" : " pass"), {function_word, inner, inner}, function);
      const int line = add((local ? "        " : "    ") + filled(kind->source, result, operand),
                           {kind->word, operand, result}, local ? inside : function);
      if (!local) own_.push_back({line, kind, name, operand});
    }
  }

  PhiloxStream& random_;
  Split split_;
  std::vector<const Kind*> kinds_;
  Words operands_, results_;
  std::set<std::string> names_;
  struct Own {
    int line;
    const Kind* kind;
    std::string function, operand;
  };
  std::vector<Own> own_;  // lines of the two outer functions themselves: those that can have failed
  Program program_;
};

bool is_function(const Line& line) {
  return line.words[0] == function_word;
}

}  // namespace

Program draw_program(PhiloxStream& random, Split split) {
  return Writer(random, split).write();
}

fovea::text::Vocabulary vocabulary() {
  Words all(known_words().begin(), known_words().end());
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
  for (const Line& line : program.lines)
    for (const std::string& word : line.words) encoded.lines.push_back(id_of(word));
  const auto report = [&](const char* first, const Words& words) {
    std::vector<std::int32_t> ids_of{vocabulary.id_of(first)};
    for (const std::string& word : words) ids_of.push_back(id_of(word));
    ids_of.resize(kReportWords, fovea::text::kPadId);
    return ids_of;
  };
  encoded.log = report(log_word, program.log);
  encoded.said = report(said_word, program.said);
  return encoded;
}

int nearest_words(const Program& program) {
  using Bag = std::set<std::string>;
  std::vector<Bag> bags;
  std::map<std::string, double> lines_with;
  for (const Line& line : program.lines) {
    Bag& bag = bags.emplace_back();
    for (const Line* at = &line;; at = &program.lines[static_cast<std::size_t>(at->parent)]) {
      bag.insert(at->words.begin(), at->words.end());
      if (at->parent < 0) break;
    }
    for (const std::string& word : bag) ++lines_with[word];
  }
  const auto weight = [&](const std::string& word) {
    const auto found = lines_with.find(word);
    return std::log((1.0 + static_cast<double>(program.lines.size())) /
                    (1.0 + (found == lines_with.end() ? 0.0 : found->second))) +
           1.0;
  };
  Bag asked(program.log.begin(), program.log.end());
  asked.insert(program.said.begin(), program.said.end());
  int best = -1;
  double largest = -1.0;
  for (int i = 0; i < static_cast<int>(program.lines.size()); ++i) {
    if (is_function(program.lines[static_cast<std::size_t>(i)])) continue;
    double shared = 0.0, length = 0.0;
    for (const std::string& word : bags[static_cast<std::size_t>(i)]) {
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
