#include "heads.h"

#include <algorithm>
#include <string_view>

namespace generate {

using fovea::Tensor;

std::vector<std::size_t> places(Place place, std::span<const std::int32_t> ids, std::size_t row) {
  if (place == Place::before) return row > 0 ? std::vector{row - 1} : std::vector<std::size_t>{};
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < row; ++i) {
    if (ids[i] != ids[row]) continue;
    if (place == Place::same) found.push_back(i);
    if (place == Place::continued && i + 1 < row) found.push_back(i + 1);
  }
  return found;
}

std::vector<Tensor> weights_of(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids) {
  std::vector<Tensor> layers(model.stack().size());
  fovea::nn::Context context;
  const std::vector<std::int32_t> stretch(ids.begin(), ids.end());
  model.hidden(context, fovea::models::pad({&stretch, 1}),
               [&](std::string_view, std::size_t layer) { return &layers[layer]; });
  return layers;
}

Heads measure_heads(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids,
                    std::int64_t window) {
  const std::int64_t heads = model.config().heads;
  Heads all;
  for (std::int64_t i = 0; i < model.config().layers * heads; ++i)
    all.heads.push_back({.layer = i / heads, .head = i % heads});
  std::array<double, 3> count{};
  const auto length = static_cast<std::size_t>(window);
  for (std::size_t begin = 0; begin + length <= ids.size(); begin += length) {
    const auto stretch = ids.subspan(begin, length);
    const std::vector<Tensor> layers = weights_of(model, stretch);
    for (std::size_t row = 0; row < length; ++row) {
      for (std::size_t place = 0; place < count.size(); ++place) {
        const auto found = places(static_cast<Place>(place), stretch, row);
        if (found.empty()) continue;
        count[place] += 1.0;
        all.uniform[place] += static_cast<double>(found.size()) / static_cast<double>(row + 1);
        for (HeadWeights& head : all.heads) {
          const float* weights = layers[static_cast<std::size_t>(head.layer)].data<float>() +
                                 (static_cast<std::size_t>(head.head) * length + row) * length;
          for (const std::size_t at : found) head.weight[place] += static_cast<double>(weights[at]);
        }
      }
    }
  }
  for (std::size_t place = 0; place < count.size(); ++place) {
    all.uniform[place] /= std::max(1.0, count[place]);
    for (HeadWeights& head : all.heads) head.weight[place] /= std::max(1.0, count[place]);
  }
  return all;
}

std::size_t most_repetitive(std::span<const std::int32_t> ids, std::size_t length) {
  std::size_t best = 0;
  std::ptrdiff_t most = -1;
  for (std::size_t begin = 0; begin + length <= ids.size(); begin += length / 4) {
    std::vector<std::int32_t> stretch(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                      ids.begin() + static_cast<std::ptrdiff_t>(begin + length));
    std::sort(stretch.begin(), stretch.end());
    const auto different = std::unique(stretch.begin(), stretch.end()) - stretch.begin();
    const std::ptrdiff_t repeated = static_cast<std::ptrdiff_t>(length) - different;
    if (repeated > most) {
      most = repeated;
      best = begin;
    }
  }
  return best;
}

}  // namespace generate
