#include "world.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "fovea/core/philox.h"
#include "fovea/text/words.h"

namespace retrieve {
namespace {

using Words = std::vector<std::string>;

// 128 names, so that few passages of a collection have the same people in them.
const Words names = [] {
  Words made;
  for (const char* first :
       {"an", "bo", "ca", "da", "el", "fi", "ga", "ho", "il", "jo", "ka", "lu", "ma", "no", "ol", "pe"})
    for (const char* last : {"bert", "dor", "lin", "mar", "nia", "ra", "sef", "ton"})
      made.push_back(std::string(first) + last);
  return made;
}();
const Words things{"apples",  "axes",   "bags",   "balls",  "barrels", "beds",  "bells",   "belts",
                   "boats",   "books",  "boots",  "bowls",  "brooms",  "cakes", "candles", "carts",
                   "chairs",  "clocks", "coats",  "combs",  "cups",    "desks", "dolls",   "doors",
                   "drums",   "fans",   "flags",  "forks",  "gloves",  "hats",  "horns",   "jars",
                   "kettles", "keys",   "kites",  "knives", "lamps",   "maps",  "masks",   "mirrors",
                   "nails",   "nets",   "ovens",  "pans",   "pears",   "pens",  "pianos",  "pipes",
                   "plates",  "ropes",  "rugs",   "saws",   "scarves", "ships", "shoes",   "spoons",
                   "stools",  "stoves", "tables", "tents",  "towels",  "vases", "violins", "wheels"};
const Words months{"january", "february", "march",     "april",   "may",      "june",
                   "july",    "august",   "september", "october", "november", "december"};
const Words past{"sold", "gave", "lent", "sent", "showed", "brought", "threw", "promised"};
const Words present{"sell", "give", "lend", "send", "show", "bring", "throw", "promise"};
const Words others{".", "?", "in", "never", "who", "what", "when", "whom", "did"};

const fovea::text::WordList& all_words() {
  static const fovea::text::WordList all{others, names, things, months, past, present};
  return all;
}

void append(Ids& text, std::initializer_list<std::string> words) {
  for (const std::string& word : words)
    if (!word.empty()) text.push_back(all_words().id_of(word));
}

// The parts of a line, each an index into its list of words.
enum Part : std::size_t { giver, receiver, thing, month, verb, negated, kParts };
using Fact = std::array<std::size_t, kParts>;
using Facts = std::vector<Fact>;

// How many words a part has.
std::size_t choices(std::size_t part) {
  constexpr std::size_t kNegations = 2;
  const std::array<std::size_t, kParts> sizes{names.size(),  names.size(), things.size(),
                                              months.size(), past.size(),  kNegations};
  return sizes[part];
}

World world_of(const Fact& fact) {
  const auto [low, high] = std::minmax(fact[giver], fact[receiver]);
  // split_of gives shares of 90, 5 and 5 per cent; here each world needs half of the hashes.
  const std::uint32_t bits =
      fovea::philox4x32({static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high), 0, 0}, 1)[0];
  return bits % 2 == 0 ? World::train : World::held_out;
}

bool all_in(World world, const Facts& facts) {
  return std::all_of(facts.begin(), facts.end(), [&](const Fact& f) { return world_of(f) == world; });
}

// `count` different numbers below `bound`, in a drawn order.
std::vector<std::size_t> different(fovea::PhiloxStream& random, std::size_t count, std::size_t bound) {
  std::vector<std::size_t> all(bound);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return random.draw_from(all, count);
}

// Facts that share no word in the same part; half of them are negated.
Facts draw_facts(fovea::PhiloxStream& random, std::size_t lines) {
  const auto people = different(random, 2 * lines, names.size());
  const auto what = different(random, lines, things.size()), when = different(random, lines, months.size()),
             how = different(random, lines, past.size());
  const std::size_t first = random.next_below(2);
  Facts facts(lines);
  for (std::size_t i = 0; i < lines; ++i)
    facts[i] = {people[2 * i], people[2 * i + 1], what[i], when[i], how[i], (i + first) % 2};
  return facts;
}

// `facts` with one change, after which line 0 no longer answers the question for `asked_part`. For kind 0 its
// two people are exchanged. For other kinds a part that the question states is exchanged with that of another
// line. With probability `replaced`, and if there is no other line, the part becomes a random word instead.
Facts spoil(fovea::PhiloxStream& random, Facts facts, std::size_t kind, std::size_t asked_part,
            float replaced) {
  if (kind == 0) {
    std::swap(facts[0][giver], facts[0][receiver]);
    return facts;
  }
  std::size_t part = kind - 1;
  if (part >= kParts - 1) part = random.next_below(kParts - 1);
  if (part >= asked_part) ++part;
  if (facts.size() == 1 || random.next_uniform() < replaced) {
    std::size_t& value = facts[0][part];
    value = (value + 1 + random.next_below(static_cast<std::uint32_t>(choices(part) - 1))) % choices(part);
    return facts;
  }
  std::size_t other = 0;
  do other = 1 + random.next_below(static_cast<std::uint32_t>(facts.size() - 1));
  while (facts[other][part] == facts[0][part]);
  std::swap(facts[0][part], facts[other][part]);
  return facts;
}

Ids ask(const Fact& fact, std::size_t asked_part) {
  const std::string from = names[fact[giver]], to = names[fact[receiver]], what = things[fact[thing]],
                    when = months[fact[month]], never = fact[negated] ? "never" : "";
  const std::string did = present[fact[verb]];
  Ids question;
  if (asked_part == giver) append(question, {"who", never, past[fact[verb]], to, what, "in", when, "?"});
  if (asked_part == receiver) append(question, {"whom", "did", from, never, did, what, "in", when, "?"});
  if (asked_part == thing) append(question, {"what", "did", from, never, did, to, "in", when, "?"});
  if (asked_part == month) append(question, {"when", "did", from, never, did, to, what, "?"});
  return question;
}

void tell(Ids& passage, const Fact& fact) {
  append(passage, {names[fact[giver]], fact[negated] ? "never" : "", past[fact[verb]], names[fact[receiver]],
                   things[fact[thing]], "in", months[fact[month]], "."});
}

}  // namespace

std::int64_t vocabulary_size() {
  return all_words().size();
}

const std::string& word(std::int32_t id) {
  return all_words().word(id);
}

Family draw_family(World world, std::uint64_t seed, std::uint64_t index, const FamilyShape& shape) {
  fovea::PhiloxStream random((seed << 40) + index);
  std::array<Facts, kFamilySize> members;
  std::size_t asked_part = 0;
  const auto any_outside = [&] {
    return !std::all_of(members.begin(), members.end(), [&](const Facts& f) { return all_in(world, f); });
  };
  do {
    do members[0] = draw_facts(random, static_cast<std::size_t>(shape.lines));
    while (!all_in(world, members[0]));
    asked_part = random.next_below(month + 1);
    for (std::size_t kind = 0; kind + 1 < kFamilySize; ++kind)
      members[kind + 1] = spoil(random, members[0], kind, asked_part, shape.replaced);
  } while (any_outside());

  Family family;
  family.question = ask(members[0][0], asked_part);
  for (const std::size_t member : different(random, kFamilySize, kFamilySize)) {
    if (member == 0) family.answer = family.passages.size();
    Ids& passage = family.passages.emplace_back();
    for (const std::size_t line : different(random, members[member].size(), members[member].size())) {
      if (member == 0 && line == 0) family.answer_begin = passage.size();
      tell(passage, members[member][line]);
      if (member == 0 && line == 0) family.answer_end = passage.size();
    }
  }
  return family;
}

}  // namespace retrieve
