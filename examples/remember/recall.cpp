#include "recall.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fovea/core/philox.h"

namespace remember {
namespace {

// The first `count` of a random order of `from`.
std::vector<std::int32_t> shuffled(fovea::PhiloxStream& random, std::vector<std::int32_t> from,
                                   std::int64_t count) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t other = i + random.next_below(static_cast<std::uint32_t>(from.size() - i));
    std::swap(from[i], from[other]);
  }
  from.resize(static_cast<std::size_t>(count));
  return from;
}

}  // namespace

Vocabulary vocabulary_of_lists() {
  return {.tables = {{"keys", kKeys}, {"values", kValues + 1}}, .answers = kValues};
}

Exercise draw_list(std::uint64_t seed, std::uint64_t number, std::int64_t pairs) {
  fovea::PhiloxStream random(seed, number << 20);
  std::vector<std::int32_t> all(kKeys);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int32_t> told = shuffled(random, all, pairs);
  std::vector<std::int32_t> value_of[2] = {std::vector<std::int32_t>(kKeys),
                                           std::vector<std::int32_t>(kKeys)};
  Exercise list{.ids = {{}, {}}, .answers = {}};
  for (std::vector<std::int32_t>& values : value_of) {
    for (const std::int32_t key : shuffled(random, told, pairs)) {
      values[static_cast<std::size_t>(key)] = static_cast<std::int32_t>(random.next_below(kValues));
      list.ids[0].push_back(key);
      list.ids[1].push_back(values[static_cast<std::size_t>(key)]);
    }
  }
  for (const std::int32_t key : shuffled(random, told, pairs)) {
    list.ids[0].push_back(key);
    list.ids[1].push_back(kQuestion);
    list.outdated.push_back(value_of[0][static_cast<std::size_t>(key)]);
    list.answers.push_back(value_of[1][static_cast<std::size_t>(key)]);
  }
  return list;
}

Vocabulary vocabulary_of_long_lists() {
  return {.tables = {{"keys", kKeys + 1}, {"values", kValues + 2}}, .answers = kValues};
}

Exercise draw_long_list(std::uint64_t seed, std::uint64_t number, std::int64_t tokens) {
  constexpr std::int32_t noise[] = {kKeys, kValues + 1};
  const std::int64_t pairs = std::min(kKeys, tokens / 4);
  fovea::PhiloxStream random(seed, number << 20);
  std::vector<std::int32_t> all(kKeys), value_of(kKeys);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int32_t> told = shuffled(random, all, pairs);
  Exercise list{.ids = {{}, {}}, .answers = {}};
  // Every choice of places is equally probable: of `left` tokens so many still tell a pair.
  std::size_t next = 0;
  for (std::int64_t left = tokens - pairs; left > 0; --left) {
    const auto pairs_left = static_cast<std::uint32_t>(told.size() - next);
    if (random.next_below(static_cast<std::uint32_t>(left)) < pairs_left) {
      const std::int32_t key = told[next++];
      value_of[static_cast<std::size_t>(key)] = static_cast<std::int32_t>(random.next_below(kValues));
      list.ids[0].push_back(key);
      list.ids[1].push_back(value_of[static_cast<std::size_t>(key)]);
    } else {
      list.ids[0].push_back(noise[0]);
      list.ids[1].push_back(noise[1]);
    }
  }
  for (const std::int32_t key : shuffled(random, told, pairs)) {
    list.ids[0].push_back(key);
    list.ids[1].push_back(kQuestion);
    list.answers.push_back(value_of[static_cast<std::size_t>(key)]);
  }
  return list;
}

}  // namespace remember
