#include "fovea/models/similarity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/pieces.h"
#include "fovea/core/error.h"
#include "models/pair_sums.h"

namespace fovea::models {
namespace {

double similarity_of(Similarity similarity, const float* a, const float* b, std::int64_t dim) {
  const PairSums sums = sums_of_pair(a, b, dim);
  // The least length is that of torch.nn.functional.normalize.
  const auto length = [](double sum) { return std::max(std::sqrt(sum), 1e-12); };
  switch (similarity) {
    case Similarity::cosine:
      return sums.product / (length(sums.of_a) * length(sums.of_b));
    case Similarity::dot:
      return sums.product;
    case Similarity::euclidean:
      return -std::sqrt(sums.squares);
    case Similarity::manhattan:
      return -sums.absolute;
  }
  return 0.0;
}

}  // namespace

std::string_view to_string(Similarity similarity) {
  switch (similarity) {
    case Similarity::cosine:
      return "cosine";
    case Similarity::dot:
      return "dot";
    case Similarity::euclidean:
      return "euclidean";
    case Similarity::manhattan:
      return "manhattan";
  }
  return "";
}

std::vector<double> similarities(Similarity similarity, const Tensor& query, const Tensor& passages) {
  const std::int64_t dim = query.count();
  if (passages.rank() != 2 || passages.size(1) != dim)
    throw InvalidArgument("similarities", "passages", "[passages, " + std::to_string(dim) + "]",
                          to_string(passages.shape()));
  std::vector<double> scores(static_cast<std::size_t>(passages.size(0)));
  for_pieces(
      passages.size(0),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          scores[static_cast<std::size_t>(row)] =
              similarity_of(similarity, query.data<float>(), passages.data<float>() + row * dim, dim);
      },
      dim);
  return scores;
}

std::vector<std::size_t> best_of(const std::vector<double>& scores, std::size_t count) {
  std::vector<std::size_t> numbers(scores.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  const std::size_t kept = count > 0 ? std::min(count, numbers.size()) : numbers.size();
  // NaN is below all others: it has no place in the order of numbers, and a sort by it alone has none.
  const auto better = [&](std::size_t a, std::size_t b) {
    if (scores[a] > scores[b] || (std::isnan(scores[b]) && !std::isnan(scores[a]))) return true;
    if (scores[b] > scores[a] || (std::isnan(scores[a]) && !std::isnan(scores[b]))) return false;
    return a < b;
  };
  std::ranges::partial_sort(numbers, numbers.begin() + static_cast<std::ptrdiff_t>(kept), better);
  numbers.resize(kept);
  return numbers;
}

}  // namespace fovea::models
