// How a token is chosen: the cuts, their order, and draws.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/clones.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "models/sampling.h"

namespace fovea::models {

void check_choices(const CallNames& names, const SampleOptions& options) {
  const auto refuse = [&](const char* option, const char* expected, const std::string& got) {
    throw InvalidArgument(names.function, std::string(names.options) + option, expected, got);
  };
  if (!(options.temperature >= 0.0) || std::isinf(options.temperature))
    refuse("temperature", "a number of 0 or more", std::to_string(options.temperature));
  if (options.top_k < 0) refuse("top_k", "0 or more", std::to_string(options.top_k));
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    refuse("top_p", "in (0, 1]", std::to_string(options.top_p));
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0))
    refuse("min_p", "in [0, 1]", std::to_string(options.min_p));
  if (!(options.repetition_penalty > 0.0) || std::isinf(options.repetition_penalty))
    refuse("repetition_penalty", "a number above 0", std::to_string(options.repetition_penalty));
}

namespace {

// Tokens with weights in proportion to their probabilities. They are brought into their order, most probable
// first and of equals the smaller id, only as far as someone asks: a draw seldom looks further than a few
// dozen of ten thousand, and sorting all of them took as long as the rest of the model.
class Ranked {
 public:
  explicit Ranked(std::vector<Choice> tokens) : tokens_(std::move(tokens)) {}
  std::size_t size() const { return tokens_.size(); }
  const Choice& operator[](std::size_t rank) {
    while (rank >= sorted_) sort_more();
    return tokens_[rank];
  }
  /// Drops all tokens but the first `count`.
  void keep(std::size_t count) {
    if (count >= tokens_.size()) return;
    while (count > sorted_) sort_more();
    tokens_.resize(count);
    sorted_ = count;
  }
  std::vector<Choice>& tokens() { return tokens_; }

 private:
  static bool before(const Choice& a, const Choice& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
  }
  void sort_more() {
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    sorted_ = std::min(tokens_.size(), std::max<std::size_t>(64, 4 * sorted_));
    const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    if (end != tokens_.end()) std::nth_element(begin, end, tokens_.end(), before);
    std::sort(begin, end, before);
  }
  std::vector<Choice> tokens_;
  std::size_t sorted_ = 0;
};

// The tokens that can be drawn, their weights, and the sum of these.
struct Drawn {
  Ranked tokens;
  double sum = 0.0;
};

// The most probable token, and of equals the smaller id.
struct Best {
  std::int32_t id;
  double log_probability;
};

}  // namespace

// Sixteen lanes keep a maximum each, so that the loop becomes vector code. With a branch for each number,
// 50,257 of them took 45 us, a fiftieth of a token of GPT-2 in int8.
FOVEA_CLONES float largest_of(const float* numbers, std::size_t count) {
  constexpr std::size_t lanes = 16;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  float largest[lanes];
  int nan[lanes] = {};
  for (float& one : largest) one = -infinity;
  const std::size_t whole = count / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float number = numbers[i + lane];
      largest[lane] = number > largest[lane] ? number : largest[lane];
      nan[lane] |= number != number ? 1 : 0;
    }
  }
  for (std::size_t i = whole; i < count; ++i) {
    largest[0] = std::max(largest[0], numbers[i]);
    nan[0] |= std::isnan(numbers[i]) ? 1 : 0;
  }
  if (std::any_of(nan, nan + lanes, [](int one) { return one != 0; })) return infinity;
  return *std::max_element(largest, largest + lanes);
}

namespace {

// Intervals of log-probability in eighths of a nat below the best. The last one has all that are further
// down.
constexpr std::size_t intervals = 256;
std::size_t interval_of(double place) {
  return static_cast<std::size_t>(std::min(place, static_cast<double>(intervals - 1)));
}

// The last interval that the `count` best tokens reach into. Without it all tokens were copied and put in
// order to find a few dozen of them.
std::size_t last_interval(std::span<const float> log_probabilities, double best, std::size_t count) {
  std::array<std::size_t, intervals> counts{};
  for (const float one : log_probabilities) ++counts[interval_of(8.0 * (best - one))];
  std::size_t last = 0, found = counts[0];
  while (found < count && last + 1 < intervals) found += counts[++last];
  return last;
}

Best best_of(std::span<const float> log_probabilities) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float best = largest_of(log_probabilities.data(), log_probabilities.size());
  if (best == infinity) {
    const auto at = std::ranges::find_if(log_probabilities, [](float value) { return !(value < infinity); });
    throw InvalidArgument(
        "choices", "log_probabilities", "numbers or -inf",
        std::to_string(*at) + " at " + std::to_string(std::distance(log_probabilities.begin(), at)));
  }
  if (best == -infinity)
    throw InvalidArgument("choices", "log_probabilities", "at least one token with a probability above 0",
                          "none");
  const auto at = std::ranges::find(log_probabilities, best);
  return {static_cast<std::int32_t>(std::distance(log_probabilities.begin(), at)), best};
}

double sum_of(const std::vector<Choice>& tokens) {
  double sum = 0.0;
  for (const Choice& token : tokens) sum += token.probability;
  return sum;
}

// At least `least` tokens are left, if so many have a probability.
Drawn drawn(std::span<const float> log_probabilities, const SampleOptions& options, std::size_t least = 1) {
  check_choices({"choices"}, options);
  const Best best = best_of(log_probabilities);
  if (options.temperature == 0.0) return {Ranked({{best.id, 1.0}}), 1.0};
  const std::size_t most =
      options.top_k > 0 ? std::max(static_cast<std::size_t>(options.top_k), least) : log_probabilities.size();
  const std::size_t last =
      options.top_k > 0 ? last_interval(log_probabilities, best.log_probability, most) : intervals;
  std::vector<Choice> finite;
  if (options.top_k == 0) finite.reserve(log_probabilities.size());
  for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
    const double one = log_probabilities[i];
    if (std::isfinite(one) &&
        (last + 1 >= intervals || interval_of(8.0 * (best.log_probability - one)) <= last))
      finite.push_back({static_cast<std::int32_t>(i), one});
  }
  Ranked tokens(std::move(finite));
  tokens.keep(most);
  for (Choice& token : tokens.tokens())
    token.probability = std::exp((token.probability - best.log_probability) / options.temperature);
  double sum = sum_of(tokens.tokens());
  if (options.top_p < 1.0) {
    const double wanted = options.top_p * sum;
    std::size_t count = 0;
    for (sum = 0.0; count < tokens.size() && (sum < wanted || count < least); ++count)
      sum += tokens[count].probability;
    tokens.keep(count);
  }
  if (options.min_p > 0.0) {  // the largest weight is 1
    std::size_t count = 1;
    while (count < tokens.size() && (tokens[count].probability >= options.min_p || count < least)) ++count;
    tokens.keep(count);
    sum = sum_of(tokens.tokens());
  }
  return {std::move(tokens), sum};
}

}  // namespace

std::vector<Choice> choices(std::span<const float> log_probabilities, const SampleOptions& options) {
  Drawn from = drawn(log_probabilities, options);
  std::vector<Choice> result;
  for (std::size_t rank = 0; rank < from.tokens.size(); ++rank)
    result.push_back({from.tokens[rank].id, from.tokens[rank].probability / from.sum});
  return result;
}

std::vector<std::int32_t> kept_ids(std::span<const float> log_probabilities, const SampleOptions& options,
                                   std::size_t least) {
  Drawn from = drawn(log_probabilities, options, least);
  std::vector<std::int32_t> ids;
  for (const Choice& token : from.tokens.tokens()) ids.push_back(token.id);
  return ids;
}

namespace {

// The first token, by rank, at which the sum from `before` on exceeds `uniform`.
template <class Tokens>
std::int32_t token_at(Tokens& tokens, double before, double all, double uniform) {
  double sum = before;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    sum += tokens[rank].probability / all;
    if (uniform < sum) return tokens[rank].id;
  }
  // Rounding may leave the sum slightly below 1. The rest belongs to the last token with a positive
  // probability.
  std::size_t last = tokens.size() - 1;
  while (last > 0 && !(tokens[last].probability > 0.0)) --last;
  return tokens[last].id;
}

// Sums of weights by intervals, the most probable first.
using Sums = std::array<double, intervals>;

// The interval in which the sum from `before` on exceeds `uniform`. `before` becomes the sum in front of it.
std::size_t interval_at(const Sums& sums, double all, double uniform, double& before) {
  std::size_t chosen = intervals;
  double behind = before;
  for (std::size_t n = 0; n < intervals; ++n) {
    if (sums[n] == 0.0) continue;  // rounding may leave nothing behind the last one with a weight
    before = behind;
    behind += sums[n] / all;
    chosen = n;
    if (uniform < behind) break;
  }
  return chosen;
}

// A draw without cuts, of which nobody needs the order of all tokens. One sweep over the vocabulary adds up
// weights by eighths of a nat below the best. The running sum of `choices` then exceeds `uniform` among those
// of one eighth, which is divided in the same way until few are left, and they alone are sorted. So the token
// is that of the running sum, up to the rounding of sums.
std::int32_t drawn_of_all(std::span<const float> log_probabilities, double best, double temperature,
                          double uniform) {
  const auto eighth = [&](std::size_t i) {
    return interval_of(8.0 * ((best - log_probabilities[i]) / temperature));
  };
  std::vector<double> weights(log_probabilities.size());
  // Pieces of one size, so that no bit depends on the threads. Smaller vocabularies stay on the calling
  // thread.
  constexpr std::size_t piece = 1 << 15;
  const std::size_t pieces = (weights.size() + piece - 1) / piece;
  std::vector<Sums> of_pieces(pieces);
  default_executor().parallel_for(static_cast<std::int64_t>(pieces), [&](std::int64_t unit, int) {
    const auto n = static_cast<std::size_t>(unit);
    for (std::size_t i = n * piece; i < std::min(weights.size(), (n + 1) * piece); ++i) {
      weights[i] = std::exp((log_probabilities[i] - best) / temperature);
      of_pieces[n][eighth(i)] += weights[i];
    }
  });
  Sums sums{};
  for (const Sums& of_piece : of_pieces) std::ranges::transform(sums, of_piece, sums.begin(), std::plus<>());
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  double before = 0.0;
  std::size_t chosen = interval_at(sums, all, uniform, before);
  std::vector<Choice> left;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0.0 && eighth(i) == chosen) left.push_back({static_cast<std::int32_t>(i), weights[i]});
  }
  constexpr std::size_t few = 64;
  const auto log_probability = [&](const Choice& token) {
    return static_cast<double>(log_probabilities[static_cast<std::size_t>(token.id)]);
  };
  while (left.size() > few) {
    const auto [least, most] = std::ranges::minmax(left, {}, log_probability);
    if (log_probability(least) == log_probability(most)) break;  // equals are in order: by their ids
    const double first = log_probability(most), scale = intervals / (first - log_probability(least));
    const auto interval = [&](const Choice& token) {
      return interval_of((first - log_probability(token)) * scale);
    };
    sums = {};
    for (const Choice& token : left) sums[interval(token)] += token.probability;
    chosen = interval_at(sums, all, uniform, before);
    std::erase_if(left, [&](const Choice& token) { return interval(token) != chosen; });
  }
  if (left.size() <= few) std::ranges::stable_sort(left, std::greater<>(), log_probability);
  return token_at(left, before, all, uniform);
}

}  // namespace

std::int32_t sample(std::span<const float> log_probabilities, const SampleOptions& options, double uniform) {
  if (!(uniform >= 0.0 && uniform < 1.0))
    throw InvalidArgument("sample", "uniform", "in [0, 1)", std::to_string(uniform));
  check_choices({"sample"}, options);
  const bool cut = options.top_k > 0 || options.top_p < 1.0 || options.min_p > 0.0;
  if (cut && options.temperature > 0.0) {
    Drawn from = drawn(log_probabilities, options);
    return token_at(from.tokens, 0.0, from.sum, uniform);
  }
  const Best best = best_of(log_probabilities);
  if (options.temperature == 0.0) return best.id;
  return drawn_of_all(log_probabilities, best.log_probability, options.temperature, uniform);
}

double uniform_of(std::uint64_t seed, std::int64_t index, std::uint32_t draw) {
  const auto at = static_cast<std::uint64_t>(index);
  const auto bits =
      philox4x32({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), draw, 0},
                 seed ^ 0xD6E8FEB86659FD93u);
  const std::uint64_t high = bits[0] >> 5, low = bits[1] >> 6;
  return static_cast<double>((high << 26) | low) * 0x1p-53;
}

namespace {

// Weights whose sums over blocks are kept, so that a draw reads the sums and one block.
class BlockedWeights {
 public:
  explicit BlockedWeights(std::span<const double> log_weights)
      : log_weights_(log_weights.begin(), log_weights.end()), weights_(log_weights.size()) {
    while (block_ * block_ < weights_.size()) ++block_;
    sums_.resize((weights_.size() + block_ - 1) / block_);
    scale();
  }

  bool empty() const { return sum() == 0.0; }
  /// The entry at which the running sum exceeds `uniform` times the sum of all, which is no longer drawn.
  std::size_t draw(double uniform) {
    double wanted = uniform * sum();
    std::size_t block = 0, last = 0;
    for (std::size_t b = 0; b < sums_.size(); ++b) {  // rounding may leave nothing behind the last block
      if (sums_[b] == 0.0) continue;
      block = b;
      if (wanted < sums_[b]) break;
      wanted -= sums_[b];
    }
    for (std::size_t i = block * block_; i < end_of(block); ++i) {
      if (weights_[i] == 0.0) continue;
      last = i;
      if (wanted < weights_[i]) break;
      wanted -= weights_[i];
    }
    log_weights_[last] = -std::numeric_limits<double>::infinity();
    weights_[last] = 0.0;
    add_up(block);
    // Numbers below 1e-308 lose digits: those that are left get new weights, relative to the largest of them.
    if (sum() < 1e-200) scale();
    return last;
  }

 private:
  std::size_t end_of(std::size_t block) const { return std::min(weights_.size(), (block + 1) * block_); }
  void add_up(std::size_t block) {
    sums_[block] = 0.0;
    for (std::size_t i = block * block_; i < end_of(block); ++i) sums_[block] += weights_[i];
  }
  double sum() const {
    double all = 0.0;
    for (const double of_block : sums_) all += of_block;
    return all;
  }
  void scale() {
    double most = -std::numeric_limits<double>::infinity();
    for (const double one : log_weights_) most = std::max(most, one);
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = std::isfinite(most) ? std::exp(log_weights_[i] - most) : 0.0;
    for (std::size_t block = 0; block < sums_.size(); ++block) add_up(block);
  }

  std::vector<double> log_weights_, weights_, sums_;
  std::size_t block_ = 1;
};

}  // namespace

std::vector<std::size_t> draw_without_replacement(std::span<const double> log_weights, std::size_t count,
                                                  const std::function<double(std::size_t)>& uniform) {
  BlockedWeights weights(log_weights);
  std::vector<std::size_t> drawn;
  while (drawn.size() < count && !weights.empty()) drawn.push_back(weights.draw(uniform(drawn.size())));
  return drawn;
}

}  // namespace fovea::models
