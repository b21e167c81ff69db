#include "fovea/models/weight_errors.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "autograd/rows.h"
#include "core/pieces.h"
#include "fovea/core/error.h"
#include "fovea/core/kept_vector.h"
#include "models/pair_sums.h"

namespace fovea::models {
namespace {

std::span<const float> numbers_of(const Tensor& tensor) {
  return {tensor.data<float>(), static_cast<std::size_t>(tensor.count())};
}

}  // namespace

void RelativeError::add(std::span<const float> exact, std::span<const float> given) {
  if (exact.size() != given.size())
    throw InvalidArgument("RelativeError::add", "given", std::to_string(exact.size()) + " numbers",
                          std::to_string(given.size()));
  const std::int64_t count = std::ssize(exact);
  KeptVector<PairSums> pieces(static_cast<std::size_t>((count + elements_of_piece - 1) / elements_of_piece));
  for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
    pieces[static_cast<std::size_t>(begin / elements_of_piece)] =
        sums_of_pair(exact.data() + begin, given.data() + begin, end - begin);
  });
  for (const PairSums& piece : pieces) {
    difference_ += piece.squares;
    exact_ += piece.of_a;
  }
}

double RelativeError::value() const {
  return difference_ == 0.0 ? 0.0 : std::sqrt(difference_ / exact_);
}

void RowErrors::add(const Tensor& exact, const Tensor& given) {
  if (exact.shape() != given.shape())
    throw InvalidArgument("RowErrors::add", "given", to_string(exact.shape()), to_string(given.shape()));
  numbers.add(numbers_of(exact), numbers_of(given));
  const std::int64_t width = exact.rank() > 0 ? exact.shape()[-1] : 0,
                     all = width > 0 ? exact.count() / width : 0;
  KeptVector<PairSums> of_rows(static_cast<std::size_t>(all));
  for_pieces(
      all,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          of_rows[static_cast<std::size_t>(row)] =
              sums_of_pair(exact.data<float>() + row * width, given.data<float>() + row * width, width);
      },
      width);
  for (const PairSums& sums : of_rows) {
    if (sums.of_a == 0.0 && sums.of_b == 0.0) continue;
    const double cosine = sums.product / std::max(std::sqrt(sums.of_a) * std::sqrt(sums.of_b), 1e-300);
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
    KeptVector<std::uint8_t> same(static_cast<std::size_t>(count));
    for_pieces(
        count,
        [&](std::int64_t first, std::int64_t end) {
          for (std::int64_t i = first; i < end; ++i)
            same[static_cast<std::size_t>(i)] = autograd::first_maximum(x.data<float>() + i * width, width) ==
                                                autograd::first_maximum(y.data<float>() + i * width, width);
        },
        width);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t next = i * width + ids[static_cast<std::size_t>(begin + i) + 1];
      const double a = x.data<float>()[next], b = y.data<float>()[next];
      exact_log_probability += a;
      given_log_probability += b;
      largest_difference = std::max(largest_difference, std::abs(a - b));
      same_best += same[static_cast<std::size_t>(i)];
    }
  }
  tokens += length - 1;
}

}  // namespace fovea::models
