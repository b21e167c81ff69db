// Tokens in the order of their probabilities, as far as someone asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace fovea::models {

/// The most probable token, and of equals the smaller id.
struct Best {
  std::int32_t id;
  double log_probability;
};
/// Throws InvalidArgument for a NaN or an infinity, and where no number is above -infinity.
Best best_of(std::span<const float> log_probabilities);

/// A token that can be drawn. Its weight is in proportion to its probability, and 1 for the most probable.
struct Token {
  std::int32_t id = 0;
  float number = 0.0f;
  double weight = 0.0;
};

/// Tokens in their order, the most probable first and of equals the smaller id, only as far as someone asks.
/// A draw seldom looks further than a few dozen of ten thousand, and sorting all of them took as long as the
/// rest of the model.
class Ranked {
 public:
  /// The numbers, which are read later too, are logarithms of probabilities up to a constant. The temperature
  /// is above 0. Throws InvalidArgument as best_of.
  Ranked(std::span<const float> numbers, double temperature);

  const Best& best() const { return best_; }
  /// The weights of all tokens.
  double sum_of_all() const;
  bool has(std::size_t rank) {
    while (rank >= tokens_.size() && !complete_) take_more(rank + 1);
    return rank < tokens_.size();
  }
  /// One that it has.
  const Token& operator[](std::size_t rank) {
    while (rank >= sorted_) sort_more();
    return tokens_[rank];
  }
  /// Drops all tokens but the first `count`.
  void keep(std::size_t count);
  /// Takes all tokens, and puts none in order.
  void keep_all() { (void)has(numbers_.size()); }
  /// Those that are kept, in no order.
  const std::vector<Token>& tokens() const { return tokens_; }
  /// Their weights.
  double sum() const;

 private:
  void sort_more();
  void take_more(std::size_t wanted);
  float least_of(std::size_t count) const;

  std::span<const float> numbers_;
  double temperature_;
  Best best_;
  std::vector<float> maxima_;  // of blocks of the numbers
  std::vector<Token> tokens_;  // all whose number is least_ or more
  std::size_t sorted_ = 0;
  float least_ = std::numeric_limits<float>::infinity();
  bool complete_ = false;
};

}  // namespace fovea::models
