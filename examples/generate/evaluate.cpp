#include "evaluate.h"

#include <algorithm>
#include <cmath>

#include "fovea/text/vocabulary.h"
#include "gallery.h"

namespace generate {

namespace models = fovea::models;

std::vector<double> bits(models::LanguageModel& model, std::span<const std::int32_t> ids, std::int64_t window,
                         std::int64_t stride) {
  const auto count = static_cast<std::int64_t>(ids.size());
  std::vector<double> result;
  // The window that begins at `begin` reads up to `window` tokens and predicts the one after each. Tokens
  // that an earlier window has predicted are left out.
  for (std::int64_t begin = 0; static_cast<std::int64_t>(result.size()) + 1 < count; begin += stride) {
    const std::int64_t read = std::min(window, count - 1 - begin);
    const auto from = ids.begin() + begin;
    const models::Padded tokens{.size = 1, .length = read, .ids = {from, from + read}, .lengths = {read}};
    fovea::nn::Context context;
    const fovea::Tensor log_p = model.log_probabilities(model.hidden(context, tokens));
    for (std::int64_t row = static_cast<std::int64_t>(result.size()) - begin; row < read; ++row) {
      const std::int64_t target = from[row + 1];
      result.push_back(-static_cast<double>(log_p.data<float>()[row * log_p.size(1) + target]) /
                       std::log(2.0));
    }
  }
  return result;
}

double tokens_per_second(models::LanguageModel& model, std::int64_t length, models::Reuse reuse) {
  const std::int32_t prompt[] = {fovea::text::kEosId};
  const gallery::Stopwatch writing;
  models::generate(model, prompt, {.temperature = 0.0, .length = length, .reuse = reuse});
  return static_cast<double>(length) / writing.seconds();
}

}  // namespace generate
