#include "fovea/models/weight_errors.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "fovea/core/error.h"

namespace fovea::models {
namespace {

std::span<const float> numbers_of(const Tensor& tensor) {
  return {tensor.data<float>(), static_cast<std::size_t>(tensor.count())};
}

std::int64_t best_of_row(const float* row, std::int64_t width) {
  return std::max_element(row, row + width) - row;
}

}  // namespace

void RelativeError::add(std::span<const float> exact, std::span<const float> given) {
  if (exact.size() != given.size())
    throw InvalidArgument("RelativeError::add", "given", std::to_string(exact.size()) + " numbers",
                          std::to_string(given.size()));
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = double{given[i]} - double{exact[i]};
    difference_ += difference * difference;
    exact_ += double{exact[i]} * double{exact[i]};
  }
}

double RelativeError::value() const {
  return difference_ == 0.0 ? 0.0 : std::sqrt(difference_ / exact_);
}

void RowErrors::add(const Tensor& exact, const Tensor& given) {
  if (exact.shape() != given.shape())
    throw InvalidArgument("RowErrors::add", "given", to_string(exact.shape()), to_string(given.shape()));
  numbers.add(numbers_of(exact), numbers_of(given));
  const std::int64_t width = exact.rank() > 0 ? exact.shape()[-1] : 0;
  for (std::int64_t begin = 0; begin < exact.count(); begin += width) {
    const float *a = exact.data<float>() + begin, *b = given.data<float>() + begin;
    double product = 0.0, of_a = 0.0, of_b = 0.0;
    for (std::int64_t d = 0; d < width; ++d) {
      product += double{a[d]} * b[d];
      of_a += double{a[d]} * a[d];
      of_b += double{b[d]} * b[d];
    }
    if (of_a == 0.0 && of_b == 0.0) continue;
    const double cosine = product / std::max(std::sqrt(of_a) * std::sqrt(of_b), 1e-300);
    cosines += cosine;
    least_cosine = std::min(least_cosine, cosine);
    ++rows;
  }
}

void LanguageErrors::add(LanguageModel& exact, LanguageModel& given, std::span<const std::int32_t> ids) {
  const std::int64_t length = std::ssize(ids), longest = std::min(exact.longest(), given.longest());
  if (length < 2 || length > longest)
    throw InvalidArgument("LanguageErrors::add", "ids", "from 2 to " + std::to_string(longest),
                          std::to_string(length));
  nn::Context inference;
  const Padded text{.size = 1, .length = length, .ids = {ids.begin(), ids.end()}, .lengths = {length}};
  const nn::Var rows[] = {exact.hidden(inference, text), given.hidden(inference, text)};
  constexpr std::int64_t piece = 128;  // rows whose logits are in memory at once
  for (std::int64_t begin = 0; begin < length - 1; begin += piece) {
    const std::int64_t count = std::min(piece, length - 1 - begin);
    const Tensor of_exact = autograd::slice(rows[0], 1, begin, count).value(),
                 of_given = autograd::slice(rows[1], 1, begin, count).value();
    hidden.add(numbers_of(of_exact), numbers_of(of_given));
    Tensor x = exact.logits(of_exact), y = given.logits(of_given);
    logits.add(numbers_of(x), numbers_of(y));
    autograd::log_softmax_rows(x);
    autograd::log_softmax_rows(y);
    const std::int64_t width = x.size(1);
    for (std::int64_t i = 0; i < count; ++i) {
      const float *a = x.data<float>() + i * width, *b = y.data<float>() + i * width;
      const std::int32_t next = ids[static_cast<std::size_t>(begin + i) + 1];
      exact_log_probability += a[next];
      given_log_probability += b[next];
      largest_difference = std::max(largest_difference, std::abs(double{a[next]} - double{b[next]}));
      same_best += best_of_row(a, width) == best_of_row(b, width) ? 1 : 0;
    }
  }
  tokens += length - 1;
}

}  // namespace fovea::models
