#include "models/ranked.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "core/clones.h"
#include "core/pieces.h"
#include "fovea/core/error.h"
#include "fovea/core/kept_vector.h"
#include "models/sampling.h"

namespace fovea::models {

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

namespace {

constexpr std::int64_t block = 64;  // numbers whose largest is kept

// The largest number of each block.
FOVEA_CLONES void maxima_of_blocks(const float* numbers, std::int64_t count, float* maxima) {
  constexpr std::int64_t lanes = 16;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t begin = 0; begin < count; begin += block, ++maxima) {
    if (begin + block > count) {
      *maxima = *std::max_element(numbers + begin, numbers + count);
      return;
    }
    float largest[lanes];
    for (float& one : largest) one = -infinity;
    for (std::int64_t i = begin; i < begin + block; i += lanes) {
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        largest[lane] = numbers[i + lane] > largest[lane] ? numbers[i + lane] : largest[lane];
    }
    for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
      for (std::int64_t lane = 0; lane < half; ++lane)
        largest[lane] = largest[lane + half] > largest[lane] ? largest[lane + half] : largest[lane];
    }
    *maxima = largest[0];
  }
}

// Σ e^((x - best) / temperature) in double: the library's exponential of 151,936 numbers took 1.2 ms, a
// twentieth of a token of a model of half a billion parameters. Terms below e^-700 count as 0.
FOVEA_CLONES double sum_of_weights(const float* x, std::int64_t n, double best, double temperature) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    const double exact = (static_cast<double>(x[i]) - best) / temperature;
    const double power = exact < -700.0 ? -700.0 : exact;
    constexpr double magic = 6755399441055744.0;  // 1.5·2^52: adding it rounds to an integer
    const double shifted = power * 1.4426950408889634 + magic, whole = shifted - magic;
    const double r = (power - whole * 0.6931471803691238) - whole * 1.9082149292705877e-10;
    double p = 1.0 / 6227020800.0;  // Taylor's series up to r^13
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    const std::uint64_t exponent =
        (std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(magic) + 1023u) << 52;
    const double weight = p * std::bit_cast<double>(exponent);
    sum += exact < -700.0 ? 0.0 : weight;
  }
  return sum;
}

bool before(const Token& a, const Token& b) {
  return a.number != b.number ? a.number > b.number : a.id < b.id;
}

}  // namespace

Ranked::Ranked(std::span<const float> numbers, double temperature)
    : numbers_(numbers), temperature_(temperature), best_(best_of(numbers)) {}

// Pieces of one size, so that no bit depends on the threads.
double Ranked::sum_of_all() const {
  KeptVector<double> sums(numbers_.size() / elements_of_piece + 1);
  for_pieces(std::ssize(numbers_), [&](std::int64_t begin, std::int64_t end) {
    sums[begin / elements_of_piece] =
        sum_of_weights(numbers_.data() + begin, end - begin, best_.log_probability, temperature_);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void Ranked::keep(std::size_t count) {
  if (count > 0 && has(count - 1)) (*this)[count - 1];
  tokens_.resize(std::min(count, tokens_.size()));
  sorted_ = std::min(sorted_, tokens_.size());
  complete_ = true;
}

double Ranked::sum() const {
  return std::accumulate(tokens_.begin(), tokens_.end(), 0.0,
                         [](double sum, const Token& token) { return sum + token.weight; });
}

void Ranked::sort_more() {
  const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  sorted_ = std::min(tokens_.size(), std::max<std::size_t>(64, 4 * sorted_));
  const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  if (end != tokens_.end()) std::nth_element(begin, end, tokens_.end(), before);
  std::sort(begin, end, before);
}

// Takes tokens that stand behind those that are there: `wanted` in all at least, or all that are left. The
// `count` largest numbers are not below the count-th largest of the blocks' maxima, so only blocks that reach
// it are looked through.
void Ranked::take_more(std::size_t wanted) {
  if (maxima_.empty()) {
    maxima_.resize((numbers_.size() + block - 1) / block);
    for_pieces(std::ssize(numbers_), [&](std::int64_t begin, std::int64_t end) {
      maxima_of_blocks(numbers_.data() + begin, end - begin, maxima_.data() + begin / block);
    });
  }
  wanted = std::max({wanted, std::size_t{64}, 8 * tokens_.size()});
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float above = std::exchange(least_, least_of(wanted));
  complete_ = least_ == -infinity;
  for (std::size_t n = 0; n < maxima_.size(); ++n) {
    if (maxima_[n] < least_) continue;
    for (std::size_t i = n * block; i < std::min(numbers_.size(), (n + 1) * block); ++i) {
      const float number = numbers_[i];
      if (number < least_ || number >= above || number == -infinity) continue;
      tokens_.push_back(
          {static_cast<std::int32_t>(i), number, std::exp((number - best_.log_probability) / temperature_)});
    }
  }
}

// A number that at least `count` tokens reach; -infinity where so many may not.
float Ranked::least_of(std::size_t count) const {
  if (count >= maxima_.size()) return -std::numeric_limits<float>::infinity();
  std::vector<float> order(maxima_);
  const auto at = order.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(order.begin(), at, order.end(), std::greater<>());
  return *at;
}

}  // namespace fovea::models
