// What other types of weights change: numbers of one model beside those of the same model with exact weights.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/models/language_model.h"

namespace fovea::models {

/// ‖given − exact‖ / ‖exact‖ over all numbers that were added (Frobenius).
class RelativeError {
 public:
  /// Throws InvalidArgument unless both have as many numbers.
  void add(std::span<const float> exact, std::span<const float> given);
  /// 0 where all numbers are 0 in both.
  double value() const;

 private:
  double difference_ = 0.0, exact_ = 0.0;  // sums of squares
};

/// Of rows such as hidden states or vectors of texts.
struct RowErrors {
  RelativeError numbers = {};
  std::int64_t rows = 0;  ///< those that are not 0 in both
  double cosines = 0.0, least_cosine = 1.0;

  /// f32 rows [..., width]. Throws InvalidArgument unless both have the same shape.
  void add(const Tensor& exact, const Tensor& given);
  double mean_cosine() const { return rows > 0 ? cosines / static_cast<double>(rows) : 1.0; }
};

/// Of a language model over texts.
struct LanguageErrors {
  RelativeError hidden = {}, logits = {};
  std::int64_t tokens = 0;          ///< all but the first of each text, whose probabilities count
  std::int64_t same_best = 0;       ///< places where both models find the same token most probable
  double largest_difference = 0.0;  ///< of the log-probability of a token of the texts, in nats
  /// Sums over the tokens, in nats.
  double exact_log_probability = 0.0, given_log_probability = 0.0;

  /// Runs both over the ids of a text. Throws what token_log_probabilities throws.
  void add(LanguageModel& exact, LanguageModel& given, std::span<const std::int32_t> ids);
};

}  // namespace fovea::models
