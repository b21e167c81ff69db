#include "copying.h"

#include "fovea/core/philox.h"

namespace remember {

Vocabulary vocabulary_of_copying() {
  return {.tables = {{"tokens", kSymbols + 2}}, .answers = kSymbols};
}

Exercise draw_copying(std::uint64_t seed, std::uint64_t number, std::int64_t noise) {
  fovea::PhiloxStream random(seed, number << 20);
  Exercise exercise{.ids = {{}}, .answers = {}};
  std::vector<std::int32_t>& tokens = exercise.ids.front();
  // Every choice of places is equally probable: of `left` tokens so many are still to be symbols.
  for (std::int64_t left = kCopied + noise; left > 0; --left) {
    const std::int64_t symbols = kCopied - std::ssize(exercise.answers);
    if (random.next_below(static_cast<std::uint32_t>(left)) < static_cast<std::uint32_t>(symbols)) {
      exercise.answers.push_back(static_cast<std::int32_t>(random.next_below(kSymbols)));
      tokens.push_back(exercise.answers.back());
    } else {
      tokens.push_back(kNoise);
    }
  }
  tokens.insert(tokens.end(), kCopied, kNext);
  return exercise;
}

}  // namespace remember
