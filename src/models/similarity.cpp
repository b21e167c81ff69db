#include "fovea/models/similarity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "fovea/core/error.h"

namespace fovea::models {
namespace {

double similarity_of(Similarity similarity, const float* a, const float* b, std::int64_t dim) {
  double product = 0.0, of_a = 0.0, of_b = 0.0, squares = 0.0, absolute = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) {
    const double x = a[d], y = b[d];
    product += x * y;
    of_a += x * x;
    of_b += y * y;
    squares += (x - y) * (x - y);
    absolute += std::abs(x - y);
  }
  // The least length is that of torch.nn.functional.normalize.
  const auto length = [](double sum) { return std::max(std::sqrt(sum), 1e-12); };
  switch (similarity) {
    case Similarity::cosine:
      return product / (length(of_a) * length(of_b));
    case Similarity::dot:
      return product;
    case Similarity::euclidean:
      return -std::sqrt(squares);
    case Similarity::manhattan:
      return -absolute;
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
  std::vector<double> scores;
  for (std::int64_t row = 0; row < passages.size(0); ++row)
    scores.push_back(similarity_of(similarity, query.data<float>(), passages.data<float>() + row * dim, dim));
  return scores;
}

std::vector<std::size_t> best_of(const std::vector<double>& scores, std::size_t count) {
  std::vector<std::size_t> numbers(scores.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  // NaN is below all others: it has no place in the order of numbers, and a sort by it alone has none.
  std::ranges::stable_sort(numbers, [&](std::size_t a, std::size_t b) {
    return scores[a] > scores[b] || (std::isnan(scores[b]) && !std::isnan(scores[a]));
  });
  if (count > 0 && count < numbers.size()) numbers.resize(count);
  return numbers;
}

}  // namespace fovea::models
