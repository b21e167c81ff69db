// The layers of a language model as maps: weights of attention, and quadratic forms of recurrences.
#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <variant>

#include "cli/views.h"
#include "models/configs.h"

namespace fovea::cli {
bool is_language_model(const models::ModelFolder& folder) {
  return models::is_own_language(folder.config()) ||
         models::family_kind(folder.config()) == models::FamilyKind::decoder;
}

TokenPage language_page(const models::ModelFolder& folder, const std::string& title, text::Pieces source,
                        autograd::WeightType type) {
  models::LanguageModel model = folder.language_model(type);
  const Ids& ids = source.ids;
  const std::size_t layers = model.stack().size();
  std::vector<Tensor> weights(layers), log_decays(layers);
  nn::Context inference;
  model.hidden(
      inference, models::pad(std::span(&ids, 1)),
      [&](std::string_view, std::size_t layer) { return &weights[layer]; },
      [&](std::size_t layer) { return &log_decays[layer]; });
  inspect::InspectPage page{.title = title};
  const std::vector<models::LayerKeeps> keeps = models::layers_keep(model.stack());
  for (std::size_t n = 0; n < layers; ++n) {
    const nn::Mixer& mixer = model.stack().spec().of_layer(n).mixer;
    const std::string name = fmt::format("layer {} {}", n + 1, nn::mixer_name(mixer));
    page.facts.emplace_back(name, kept_text(keeps[n], std::ssize(ids)) + decays_text(log_decays[n]));
    if (!weights[n]) continue;  // each channel of Mamba has weights of its own
    if (std::holds_alternative<nn::RecurrentOptions>(mixer)) make_shares(weights[n]);
    const float* w = weights[n].data<float>();
    page.maps.push_back({.name = name,
                         .layer = static_cast<int>(n),
                         .query_tokens = source.tokens,
                         .key_tokens = source.tokens,
                         .heads = static_cast<int>(weights[n].size(1)),
                         .weights = {w, w + weights[n].count()}});
  }
  return {std::move(page), std::move(source), {}};
}

}  // namespace fovea::cli
