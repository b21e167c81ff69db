#include "facts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fovea/core/philox.h"

namespace choose {
namespace {

// The first `count` of a random order of 0, 1, ..., size - 1.
std::vector<std::int64_t> some_of(fovea::PhiloxStream& random, std::int64_t size, std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < count; ++i)
    std::swap(all[i], all[i + random.next_below(static_cast<std::uint32_t>(size - i))]);
  all.resize(static_cast<std::size_t>(count));
  return all;
}

std::int32_t below(fovea::PhiloxStream& random, std::int64_t end) {
  return static_cast<std::int32_t>(random.next_below(static_cast<std::uint32_t>(end)));
}

constexpr std::int32_t kFirstValue = kKeys, kFirstReading = kKeys + kValues, kAsks = kParts - 1;

}  // namespace

Record draw(std::uint64_t seed, std::uint64_t number, std::int64_t length) {
  fovea::PhiloxStream random(seed, number << 24);
  const std::vector<std::int64_t> keys = some_of(random, kKeys, kFacts);
  std::vector<std::int64_t> places = some_of(random, length - kFacts, kFacts);
  std::sort(places.begin(), places.end());
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < kFacts; ++i) values.push_back(below(random, kValues));
  Record record;
  const auto add = [&](std::initializer_list<std::int32_t> parts) {
    record.tokens.parts.insert(record.tokens.parts.end(), parts);
    record.tokens.counts.push_back(std::ssize(parts));
  };
  std::size_t told = 0;
  for (std::int64_t i = 0; i < length - kFacts; ++i) {
    if (told < places.size() && places[told] == i) {
      add({static_cast<std::int32_t>(keys[told]), kFirstValue + values[told]});
      ++told;
    } else {
      add({kFirstReading + below(random, kReadings)});
    }
  }
  for (const std::int64_t fact : some_of(random, kFacts, kFacts)) {
    add({static_cast<std::int32_t>(keys[fact]), kAsks});
    record.answers.push_back(values[fact]);
  }
  return record;
}

}  // namespace choose
