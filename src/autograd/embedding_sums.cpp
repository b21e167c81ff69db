// Weighted sums of rows of a table, for bags of words. A product is rounded before it is added, on every
// instruction set: CMakeLists.txt compiles this file without contraction to fused multiply-adds.
#include <algorithm>
#include <string>
#include <vector>

#include "autograd/record.h"
#include "core/clones.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void add_weighted(const float* from, float weight, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] += weight * from[i];
}

void check_embedding_sums(const Var& table, std::span<const std::int32_t> ids,
                          std::span<const std::int64_t> counts, std::span<const float> weights) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("embedding_sums", argument, expected, got);
  };
  if (table.shape().rank() != 2) refuse("table", "[V, D]", to_string(table.shape()));
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= table.size(0))
      refuse("ids", "ids in [0, " + std::to_string(table.size(0)) + ")", std::to_string(id));
  }
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    const std::int64_t left = static_cast<std::int64_t>(ids.size()) - total;
    if (count < 0 || count > left) refuse("counts", "0 to the ids that are left", std::to_string(count));
    total += count;
  }
  if (total != static_cast<std::int64_t>(ids.size()))
    refuse("counts", std::to_string(ids.size()) + " ids in all", std::to_string(total));
  if (!weights.empty() && weights.size() != ids.size())
    refuse("weights", std::to_string(ids.size()) + " weights, or none", std::to_string(weights.size()));
}

// The rows of a table that are added to each row of the sums.
struct Bags {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> starts;  // of the ids of each sum, and the end of the last
  std::vector<float> weights;        // none: all 1
  std::int64_t dim = 0;

  float weight(std::int64_t i) const { return weights.empty() ? 1.0f : weights[static_cast<std::size_t>(i)]; }
  std::int64_t sums() const { return std::ssize(starts) - 1; }
  Executor& executor() const {
    return std::ssize(ids) * dim <= elements_of_piece ? serial_executor() : default_executor();
  }
};

// A unit has some columns of some sums, each of which adds its rows in order.
void add_bags(const Bags& bags, const float* table, float* out) {
  constexpr std::int64_t columns = 256;
  const std::int64_t across = (bags.dim + columns - 1) / columns,
                     rows = std::max<std::int64_t>(
                         std::ssize(bags.ids) / std::max<std::int64_t>(bags.sums(), 1), 1),
                     group = std::max<std::int64_t>(elements_of_piece / (rows * columns), 1);
  bags.executor().parallel_for((bags.sums() + group - 1) / group * across, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit % across * columns, width = std::min(columns, bags.dim - begin),
                       first = unit / across * group;
    for (std::int64_t sum = first; sum < std::min(bags.sums(), first + group); ++sum) {
      const auto n = static_cast<std::size_t>(sum);
      for (std::int64_t i = bags.starts[n]; i < bags.starts[n + 1]; ++i)
        add_weighted(table + bags.ids[static_cast<std::size_t>(i)] * bags.dim + begin, bags.weight(i), width,
                     out + sum * bags.dim + begin);
    }
  });
}

// A unit has every 16th row of the table, so each row adds its gradients in order.
void add_to_table(const Bags& bags, const float* d, float* gradient) {
  constexpr std::int64_t units = 16;
  bags.executor().parallel_for(units, [&](std::int64_t unit, int) {
    for (std::int64_t sum = 0; sum < bags.sums(); ++sum) {
      const auto n = static_cast<std::size_t>(sum);
      for (std::int64_t i = bags.starts[n]; i < bags.starts[n + 1]; ++i) {
        const std::int64_t id = bags.ids[static_cast<std::size_t>(i)];
        if (id % units == unit)
          add_weighted(d + sum * bags.dim, bags.weight(i), bags.dim, gradient + id * bags.dim);
      }
    }
  });
}

}  // namespace

Var embedding_sums(const Var& table, std::span<const std::int32_t> ids, std::span<const std::int64_t> counts,
                   std::span<const float> weights) {
  static constexpr ProfileLabel label{"embedding sums", ProfilePart::embeddings};
  const ProfileSpan span(label);
  check_embedding_sums(table, ids, counts, weights);
  ProfileSpan::add(moved({}, (std::ssize(ids) + std::ssize(counts)) * table.size(1)));
  Bags bags{.ids = {ids.begin(), ids.end()},
            .starts = {0},
            .weights = {weights.begin(), weights.end()},
            .dim = table.size(1)};
  for (const std::int64_t count : counts) bags.starts.push_back(bags.starts.back() + count);
  Tensor out = Tensor::zeros(DType::f32, {bags.sums(), bags.dim});
  add_bags(bags, table.value().data<float>(), out.data<float>());
  return result_of(tape_of({&table}), out, [table, bags = std::move(bags)](const Tensor& d) {
    add_to_table(bags, d.data<float>(), gradient_of(table).data<float>());
  });
}

}  // namespace fovea::autograd
