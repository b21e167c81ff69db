#include "heads.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace generate {

using fovea::Tensor;

std::vector<std::int64_t> continuations(std::span<const std::int32_t> ids) {
  std::map<std::int32_t, std::int64_t> last;
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const auto found = last.find(ids[i]);
    places.push_back(found == last.end() || found->second + 1 == at ? -1 : found->second + 1);
    last[ids[i]] = at;
  }
  return places;
}

std::vector<Tensor> weights_of(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids) {
  std::vector<Tensor> layers(model.stack().size());
  fovea::nn::Context context;
  const std::vector<std::int32_t> stretch(ids.begin(), ids.end());
  model.hidden(context, fovea::models::pad({&stretch, 1}),
               [&](std::string_view, std::size_t layer) { return &layers[layer]; });
  return layers;
}

std::vector<HeadWeights> measure_heads(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids,
                                       std::int64_t window) {
  const std::int64_t heads = model.config().heads;
  std::vector<HeadWeights> found;
  for (std::int64_t i = 0; i < model.config().layers * heads; ++i)
    found.push_back({.layer = i / heads, .head = i % heads});
  double count = 0.0;
  const auto length = static_cast<std::size_t>(window);
  for (std::size_t begin = 0; begin + length <= ids.size(); begin += length) {
    const auto stretch = ids.subspan(begin, length);
    const std::vector<std::int64_t> places = continuations(stretch);
    const std::vector<Tensor> layers = weights_of(model, stretch);
    for (std::int64_t row = 0; row < window; ++row) {
      const std::int64_t place = places[static_cast<std::size_t>(row)];
      if (place < 0) continue;
      count += 1.0;
      for (HeadWeights& head : found) {
        const float* weights = layers[static_cast<std::size_t>(head.layer)].data<float>();
        head.weight += static_cast<double>(weights[(head.head * window + row) * window + place]);
        head.uniform += 1.0 / static_cast<double>(row + 1);
      }
    }
  }
  for (HeadWeights& head : found) {
    head.weight /= std::max(count, 1.0);
    head.uniform /= std::max(count, 1.0);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const HeadWeights& a, const HeadWeights& b) { return a.weight > b.weight; });
  return found;
}

std::size_t most_repetitive(std::span<const std::int32_t> ids, std::size_t length) {
  std::size_t best = 0;
  std::ptrdiff_t most = -1;
  for (std::size_t begin = 0; begin + length <= ids.size(); begin += length / 4) {
    const auto places = continuations(ids.subspan(begin, length));
    const auto repeated = std::count_if(places.begin(), places.end(), [](std::int64_t p) { return p >= 0; });
    if (repeated > most) {
      most = repeated;
      best = begin;
    }
  }
  return best;
}

}  // namespace generate
