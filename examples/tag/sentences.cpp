#include "sentences.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fovea/core/philox.h"

namespace sentences {
namespace {

using fovea::text::Split;

enum Role : std::size_t { person, place, organisation };
constexpr std::array<const char*, 3> kTypes{"PER", "LOC", "ORG"};

// Each of these may be a person, a place and an organisation. Each of the first nine has one role only in
// held-out sentences: training does not have name i as role i mod 3.
constexpr std::string_view kShared[] = {"Florence",   "Denver",  "Chelsea", "Austin",    "Lincoln",
                                        "Bradford",   "Sydney",  "Houston", "Victoria",  "Jordan",
                                        "Washington", "Paris",   "Madison", "Georgia",   "Jackson",
                                        "Carolina",   "Chester", "Preston", "Lancaster", "Dakota"};
constexpr std::size_t kNewRoles = 9;
constexpr std::string_view kFirst[] = {"Anna",  "Peter", "Maria", "Thomas", "Ruth",  "Daniel",
                                       "Clara", "Oscar", "Helen", "Simon",  "Laura", "Victor",
                                       "April", "June",  "May",   "August"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
constexpr std::string_view kDays[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                      "Friday", "Saturday", "Sunday"};
constexpr std::string_view kOnsets[] = {"b", "d", "f",  "g", "h", "k",  "l",  "m",  "n",
                                        "p", "r", "st", "t", "v", "br", "gr", "tr", "sh"};
constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "ai", "ea"};
constexpr std::string_view kCodas[] = {"",   "n",    "r",   "l",     "s",   "m",    "nd",
                                       "rt", "ston", "ton", "field", "son", "ville"};

// In a pattern a single capital is a placeholder, filled at random: P a person, L a place, O an
// organisation, D a date, M words that fit all of them. Everything else is a word. Many patterns begin
// alike, and the kind of the name shows only after M.
constexpr std::string_view kPatterns[] = {
    "P M lost his keys on D",
    "L M lost its bridge in the flood of D",
    "O M lost its biggest customer",
    "P M grew up without a father",
    "L M grew to nine thousand inhabitants",
    "O M grew by four percent and hired P",
    "we heard of P M , who is ill",
    "we heard of L M , where it never snows",
    "we heard of O M , which sells shoes",
    "nobody knew P M and his brother",
    "nobody knew L M and its beaches",
    "nobody knew O M and its products",
    "P M was born on D in L",
    "L M was flooded on D",
    "O M was sold on D to O",
    "P M married P in L",
    "L M lies on the coast of L",
    "O M fired its director , P",
    "the sister of P M wrote a novel",
    "the mayor of L M wrote to O",
    "the shares of O M fell on D",
    "on D P M broke an arm",
    "on D L M had heavy snow",
    "on D O M paid a dividend",
    "P M , a French painter , died on D",
    "L M , a French village , has one church",
    "O M , a French company , builds engines",
    "the Minister met P M and her husband",
    "the road to L M is closed until D",
    "the headquarters of O M are in L",
    "may we remind P M of his promise",
    "the Internet made O M rich",
};
constexpr std::string_view kNeutral[] = {"",
                                         "",
                                         "",
                                         ", according to a report of D ,",
                                         ", so the papers wrote on D ,",
                                         ", as everybody here remembers ,",
                                         ", if the story is true ,",
                                         ", the President said ,",
                                         "once more",
                                         ", to our great surprise ,"};

// Invented names, the same in every run; any may be a person, a place or an organisation. Every third is
// never in training.
const std::vector<std::string>& made_names() {
  static const std::vector<std::string> names = [] {
    fovea::PhiloxStream random(41);
    const auto pick = [&](const auto& items) {
      return items[random.next_below(static_cast<std::uint32_t>(std::size(items)))];
    };
    std::vector<std::string> made;
    while (made.size() < 450) {
      std::string name;
      for (int i = 0; i < 2; ++i) name += std::string(pick(kOnsets)) + std::string(pick(kVowels));
      name += pick(kCodas);
      name[0] = static_cast<char>(std::toupper(name[0]));
      if (std::find(made.begin(), made.end(), name) == made.end()) made.push_back(name);
    }
    return made;
  }();
  return names;
}

class Writer {
 public:
  Writer(std::uint64_t seed, Split split)
      : random_(seed * 3 + static_cast<std::uint64_t>(split)), split_(split) {}

  Sentence write() {
    for (;;) {
      sentence_ = {};
      fill(pick(kPatterns));
      if (chance(40)) {
        add(pick(std::array<std::string_view, 3>{"and", ";", "while"}));
        fill(pick(kPatterns));
      }
      add(".");
      sentence_.words[0][0] = static_cast<char>(std::toupper(sentence_.words[0][0]));
      std::string text;
      for (const std::string& word : sentence_.words) text += word + ' ';
      if (fovea::text::split_of(text) != split_) continue;
      sentence_.tags = fovea::text::tags_of(sentence_.names, sentence_.words.size());
      return sentence_;
    }
  }

 private:
  int below(std::size_t bound) {
    return static_cast<int>(random_.next_below(static_cast<std::uint32_t>(bound)));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <class Items>
  std::string_view pick(const Items& items) {
    return items[static_cast<std::size_t>(below(std::size(items)))];
  }
  void add(std::string_view word) { sentence_.words.emplace_back(word); }
  void add_name(std::size_t begin, const char* type, Hard hard) {
    // "Lake Jordan" is a place whatever Jordan is: only a name that stands alone is ambiguous.
    const bool alone = sentence_.words.size() - begin == 1;
    sentence_.names.push_back({begin, sentence_.words.size(), type});
    sentence_.hard.push_back(alone || hard == Hard::unseen ? hard : Hard::no);
  }

  void fill(std::string_view pattern) {
    for (std::size_t at = 0; at < pattern.size();) {
      const std::size_t end = std::min(pattern.find(' ', at), pattern.size());
      const std::string_view word = pattern.substr(at, end - at);
      if (word == "P")
        add_person();
      else if (word == "L")
        add_named(place);
      else if (word == "O")
        add_named(organisation);
      else if (word == "D")
        add_date();
      else if (word == "M")
        fill(pick(kNeutral));
      else
        add(word);
      at = end + 1;
    }
  }

  // The name without other words of the mention; the kind belongs to the whole mention.
  std::pair<std::string, Hard> name(Role role) {
    if (chance(45)) {
      for (;;) {
        const auto i = static_cast<std::size_t>(below(std::size(kShared)));
        const bool is_new = i < kNewRoles && i % 3 == role;
        if (is_new && split_ != Split::test) continue;
        return {std::string(kShared[i]), is_new ? Hard::new_role : Hard::ambiguous};
      }
    }
    const bool unseen = split_ != Split::train && chance(50);
    for (;;) {
      const auto i = static_cast<std::size_t>(below(made_names().size()));
      if ((i % 3 == 0) == unseen) return {made_names()[i], unseen ? Hard::unseen : Hard::no};
    }
  }

  void add_person() {
    const int form = below(10);
    if (form == 0) add(pick(std::array<std::string_view, 3>{"Mr", "Dr", "President"}));  // outside the name
    const std::size_t begin = sentence_.words.size();
    if (form >= 1 && form <= 4) add(pick(kFirst));
    if (form == 5) add(std::string(1, static_cast<char>('A' + below(26))) + ".");
    if (form == 4) return add_name(begin, kTypes[person], Hard::no);  // a first name alone
    const auto [word, hard] = name(person);
    add(word);
    add_name(begin, kTypes[person], hard);
  }

  void add_named(Role role) {
    static constexpr std::array<std::string_view, 8> kForms[] = {
        {"New N", "Lake N", "Mount N", "North N", "N Valley", "Port N", "N Island", "San N"},
        {"University of N", "Bank of N", "N United", "N Motors", "N & Sons", "N Post", "N Holdings",
         "N University"}};
    const std::size_t begin = sentence_.words.size();
    const std::string_view form = chance(65) ? "N" : pick(kForms[role - 1]);
    Hard hard = Hard::no;
    for (std::size_t at = 0; at < form.size();) {
      const std::size_t end = std::min(form.find(' ', at), form.size());
      const std::string_view word = form.substr(at, end - at);
      if (word == "N") {
        const auto made = name(role);
        add(made.first);
        hard = made.second;
      } else {
        add(word);
      }
      at = end + 1;
    }
    add_name(begin, kTypes[role], hard);
  }

  void add_date() {
    const std::size_t begin = sentence_.words.size();
    const int form = below(4);
    if (form == 0) add(pick(kDays));
    if (form == 1) add(std::to_string(1 + below(30)));
    if (form >= 1) add(pick(kMonths));
    if (form == 1 || form == 2) add(std::to_string(1900 + below(120)));
    add_name(begin, "DATE", Hard::no);
  }

  fovea::PhiloxStream random_;
  Split split_;
  Sentence sentence_;
};

}  // namespace

std::vector<Sentence> generate(std::uint64_t seed, std::int64_t count, Split split) {
  Writer writer(seed, split);
  std::vector<Sentence> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(writer.write());
  return made;
}

std::vector<Sentence> read(const std::string& file) {
  std::vector<Sentence> made;
  for (fovea::text::TaggedSentence& sentence : fovea::text::read_conll(file)) {
    made.push_back(
        {.words = std::move(sentence.words), .tags = std::move(sentence.tags), .names = {}, .hard = {}});
    made.back().names = fovea::text::spans_of(made.back().tags);
  }
  return made;
}

}  // namespace sentences
