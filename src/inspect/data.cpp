#include "fovea/inspect/data.h"

#include <utility>

#include "fovea/core/error.h"

namespace fovea::inspect {
namespace {

void check_size(const std::string& function, const std::string& argument, std::size_t expected,
                std::size_t got) {
  if (expected == got) return;
  throw InvalidArgument(function, argument, std::to_string(expected) + " weights (heads * rows * columns)",
                        std::to_string(got));
}

}  // namespace

void check(const AttentionMap& map, const std::string& function) {
  if (map.heads < 1) {
    throw InvalidArgument(function, map.name + ".heads", "at least one head", std::to_string(map.heads));
  }
  check_size(function, map.name + ".weights",
             static_cast<std::size_t>(map.heads) * map.rows() * map.columns(), map.weights.size());
}

void check(const AlignmentMatrix& alignment, const std::string& function) {
  check_size(function, "alignment.weights", alignment.rows() * alignment.columns(), alignment.weights.size());
}

AlignmentMatrix head_of(const AttentionMap& map, int head) {
  check(map, "head_of");
  if (head < 0 || head >= map.heads) {
    throw InvalidArgument("head_of", "head", "0.." + std::to_string(map.heads - 1), std::to_string(head));
  }
  const std::size_t size = map.rows() * map.columns();
  const float* first = map.weights.data() + static_cast<std::size_t>(head) * size;
  return {map.query_tokens, map.key_tokens, std::vector<float>(first, first + size)};
}

AlignmentMatrix mean_over_heads(const AttentionMap& map) {
  check(map, "mean_over_heads");
  const std::size_t size = map.rows() * map.columns();
  AlignmentMatrix mean{map.query_tokens, map.key_tokens, std::vector<float>(size)};
  for (std::size_t i = 0; i < size; ++i) {
    double sum = 0;
    for (int head = 0; head < map.heads; ++head)
      sum += map.weights[static_cast<std::size_t>(head) * size + i];
    mean.weights[i] = static_cast<float>(sum / map.heads);
  }
  return mean;
}

std::vector<float> attended_by(ConstTensorView weights, std::int64_t entry, std::int64_t query,
                               std::int64_t keys) {
  if (weights.rank() != 4)
    throw InvalidArgument("attended_by", "weights", "[B, heads, Lq, Lk]", to_string(weights.shape()));
  const auto inside = [&](const char* argument, std::int64_t value, std::int64_t end) {
    if (value < 0 || value >= end)
      throw InvalidArgument("attended_by", argument, "0 to " + std::to_string(end - 1),
                            std::to_string(value));
  };
  inside("entry", entry, weights.size(0));
  inside("query", query, weights.size(2));
  inside("keys", keys, weights.size(3) + 1);
  std::vector<float> mean;
  for (std::int64_t key = 0; key < keys; ++key) {
    double sum = 0.0;
    for (std::int64_t head = 0; head < weights.size(1); ++head)
      sum += static_cast<double>(weights.at<float>({entry, head, query, key}));
    mean.push_back(static_cast<float>(sum / static_cast<double>(weights.size(1))));
  }
  return mean;
}

AttentionMap as_map(const AlignmentMatrix& alignment, std::string name) {
  check(alignment, "as_map");
  return {.name = std::move(name),
          .layer = 0,
          .query_tokens = alignment.target_tokens,
          .key_tokens = alignment.source_tokens,
          .heads = 1,
          .weights = alignment.weights};
}

}  // namespace fovea::inspect
