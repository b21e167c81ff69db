// How a token is chosen: the cuts, their order, and draws.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "models/ranked.h"
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

// The tokens that can be drawn, and the sum of their weights.
struct Drawn {
  Ranked tokens;
  double sum = 0.0;
};

// Of these tokens, whose temperature is that of the options. At least `least` are left, if so many have a
// probability.
Drawn drawn(Ranked tokens, const SampleOptions& options, std::size_t least) {
  double sum = 0.0;
  if (options.top_k > 0) {
    tokens.keep(std::max(static_cast<std::size_t>(options.top_k), least));
    sum = tokens.sum();
  }
  if (options.top_p < 1.0) {
    const double wanted = options.top_p * (options.top_k > 0 ? sum : tokens.sum_of_all());
    std::size_t count = 0;
    for (sum = 0.0; (sum < wanted || count < least) && tokens.has(count); ++count)
      sum += tokens[count].weight;
    tokens.keep(count);
  }
  if (options.min_p > 0.0) {  // the largest weight is 1
    std::size_t count = 1;
    while (tokens.has(count) && (tokens[count].weight >= options.min_p || count < least)) ++count;
    tokens.keep(count);
    sum = tokens.sum();
  }
  if (options.top_k == 0 && options.top_p == 1.0 && options.min_p == 0.0) {
    tokens.keep_all();
    sum = tokens.sum();
  }
  return {std::move(tokens), sum};
}

Drawn drawn(std::span<const float> log_probabilities, const SampleOptions& options, std::size_t least = 1) {
  check_choices({"choices"}, options);
  const bool greedy = options.temperature == 0.0;
  Ranked tokens(log_probabilities, greedy ? 1.0 : options.temperature);
  if (!greedy) return drawn(std::move(tokens), options, least);
  tokens.keep(1);
  return {std::move(tokens), 1.0};
}

}  // namespace

std::vector<Choice> choices(std::span<const float> log_probabilities, const SampleOptions& options) {
  Drawn from = drawn(log_probabilities, options);
  std::vector<Choice> result;
  for (std::size_t rank = 0; from.tokens.has(rank); ++rank)
    result.push_back({from.tokens[rank].id, from.tokens[rank].weight / from.sum});
  return result;
}

std::vector<std::int32_t> kept_ids(std::span<const float> log_probabilities, const SampleOptions& options,
                                   std::size_t least) {
  Drawn from = drawn(log_probabilities, options, least);
  std::vector<std::int32_t> ids;
  for (const Token& token : from.tokens.tokens()) ids.push_back(token.id);
  return ids;
}

namespace {

// The token at which the running sum exceeds `uniform`, if it is one of the first `most`.
std::optional<std::int32_t> token_at(Ranked& tokens, double all, double uniform, std::size_t most) {
  double sum = 0.0;
  for (std::size_t rank = 0; rank < most && tokens.has(rank); ++rank) {
    sum += tokens[rank].weight / all;
    if (uniform < sum) return tokens[rank].id;
  }
  return {};
}

// Rounding may leave the sum slightly below 1. The rest belongs to the last token with a positive
// probability.
std::int32_t last_of(Ranked& tokens) {
  std::size_t last = tokens.tokens().size() - 1;
  while (last > 0 && !(tokens[last].weight > 0.0)) --last;
  return tokens[last].id;
}

// Intervals of log-probability in eighths of a nat below the best. The last one has all that are further
// down.
constexpr std::size_t intervals = 256;
std::size_t interval_of(double place) {
  return static_cast<std::size_t>(std::min(place, static_cast<double>(intervals - 1)));
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

// A draw from so many tokens that their order would cost more than all else. One sweep over the vocabulary
// adds up weights by eighths of a nat below the best. The running sum of `choices` then exceeds a share among
// those of one eighth, which is divided in the same way until few are left, and they alone are sorted. So the
// token is that of the running sum, up to the rounding of sums.
class Weighed {
 public:
  Weighed(std::span<const float> log_probabilities, double best, double temperature)
      : log_probabilities_(log_probabilities),
        best_(best),
        temperature_(temperature),
        weights_(log_probabilities.size()) {
    // Pieces of one size, so that no bit depends on the threads. Smaller vocabularies stay on the calling
    // thread.
    constexpr std::size_t piece = 1 << 15;
    std::vector<Sums> of_pieces((weights_.size() + piece - 1) / piece);
    default_executor().parallel_for(std::ssize(of_pieces), [&](std::int64_t unit, int) {
      const auto n = static_cast<std::size_t>(unit);
      for (std::size_t i = n * piece; i < std::min(weights_.size(), (n + 1) * piece); ++i) {
        weights_[i] = std::exp((log_probabilities_[i] - best_) / temperature_);
        of_pieces[n][eighth(i)] += weights_[i];
      }
    });
    for (const Sums& of_piece : of_pieces)
      std::ranges::transform(sums_, of_piece, sums_.begin(), std::plus<>());
    all_ = std::accumulate(sums_.begin(), sums_.end(), 0.0);
  }

  struct Place {
    std::int32_t id;
    double end;  // the running sum with this token
  };
  /// Where the running sum, of which the last is 1, exceeds `share`.
  Place at(double share) const {
    double before = 0.0;
    const std::size_t first = interval_at(sums_, all_, share, before);
    std::vector<Choice> left;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] > 0.0 && eighth(i) == first)
        left.push_back({static_cast<std::int32_t>(i), weights_[i]});
    }
    divide(left, share, before);
    for (const Choice& token : left) {
      before += token.probability / all_;
      if (share < before) return {token.id, before};
    }
    return {left.back().id, before};  // all of them have a weight
  }

 private:
  std::size_t eighth(std::size_t i) const {
    return interval_of(8.0 * ((best_ - log_probabilities_[i]) / temperature_));
  }
  // Leaves few tokens, in their order, with that at which the running sum from `before` on exceeds `share`.
  void divide(std::vector<Choice>& left, double share, double& before) const {
    constexpr std::size_t few = 64;
    const auto log_probability = [&](const Choice& token) {
      return static_cast<double>(log_probabilities_[static_cast<std::size_t>(token.id)]);
    };
    while (left.size() > few) {
      const auto [least, most] = std::ranges::minmax(left, {}, log_probability);
      if (log_probability(least) == log_probability(most)) return;  // equals are in order: by their ids
      const double first = log_probability(most), scale = intervals / (first - log_probability(least));
      const auto interval = [&](const Choice& token) {
        return interval_of((first - log_probability(token)) * scale);
      };
      Sums sums{};
      for (const Choice& token : left) sums[interval(token)] += token.probability;
      const std::size_t chosen = interval_at(sums, all_, share, before);
      std::erase_if(left, [&](const Choice& token) { return interval(token) != chosen; });
    }
    std::ranges::stable_sort(left, std::greater<>(), log_probability);
  }

  std::span<const float> log_probabilities_;
  double best_, temperature_;
  std::vector<double> weights_;
  Sums sums_{};
  double all_ = 0.0;
};

// Without cuts, or cut by top_p alone: of the first few tokens, or of all by intervals.
std::int32_t drawn_by_share(Ranked tokens, std::span<const float> log_probabilities,
                            const SampleOptions& options, double uniform) {
  constexpr std::size_t few = 512;  // most draws of a trained model are among them
  const double all = tokens.sum_of_all();
  if (options.top_p == 1.0) {
    if (const auto id = token_at(tokens, all, uniform, few)) return *id;
  } else {
    double sum = 0.0;
    std::size_t count = 0;
    while (sum < options.top_p * all && count < few && tokens.has(count)) sum += tokens[count++].weight;
    if (sum >= options.top_p * all || !tokens.has(count)) {
      const auto id = token_at(tokens, sum, uniform, count);
      tokens.keep(count);
      return id ? *id : last_of(tokens);
    }
  }
  const Weighed weighed(log_probabilities, tokens.best().log_probability, options.temperature);
  if (options.top_p == 1.0) return weighed.at(uniform).id;
  // Just below the share, so that a sum that reaches it exactly ends the nucleus. Sums by intervals are
  // rounded in another order than sums of tokens, so a draw at the very end may find the token behind the
  // last one.
  const Weighed::Place last = weighed.at(std::nextafter(options.top_p, 0.0)),
                       drawn = weighed.at(uniform * last.end);
  return drawn.end > last.end ? last.id : drawn.id;
}

}  // namespace

std::int32_t sample(std::span<const float> log_probabilities, const SampleOptions& options, double uniform) {
  if (!(uniform >= 0.0 && uniform < 1.0))
    throw InvalidArgument("sample", "uniform", "in [0, 1)", std::to_string(uniform));
  check_choices({"sample"}, options);
  if (options.temperature == 0.0) return best_of(log_probabilities).id;
  Ranked tokens(log_probabilities, options.temperature);
  if (options.top_k == 0 && options.min_p == 0.0)
    return drawn_by_share(std::move(tokens), log_probabilities, options, uniform);
  Drawn from = drawn(std::move(tokens), options, 1);
  const auto id = token_at(from.tokens, from.sum, uniform, from.tokens.tokens().size());
  return id ? *id : last_of(from.tokens);
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
