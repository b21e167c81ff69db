// The layers of models of other libraries as maps: encoders and translators.
#include <fmt/format.h>

#include <utility>

#include "cli/views.h"
#include "fovea/core/error.h"

namespace fovea::cli {
namespace {

inspect::AttentionMap map_of(std::string name, std::size_t layer, const Tensor& weights,
                             const std::vector<std::string>& queries, const std::vector<std::string>& keys) {
  const float* w = weights.data<float>();
  return {.name = std::move(name),
          .layer = static_cast<int>(layer),
          .query_tokens = queries,
          .key_tokens = keys,
          .heads = static_cast<int>(weights.size(1)),
          .weights = {w, w + weights.count()}};
}

// What a decoder has read when it writes `written`: all but the last, behind the id that it starts with.
template <class T>
std::vector<T> read_before(T first, const std::vector<T>& written) {
  std::vector<T> read{std::move(first)};
  read.insert(read.end(), written.begin(), written.end() - 1);
  return read;
}

// The words of what a decoder has read: the first id is one of its own.
inspect::TokenGroups words_before(const inspect::TokenGroups& written, const std::string& first) {
  inspect::TokenGroups read{.of = {0}, .labels = {first}};
  for (std::size_t i = 0; i + 1 < written.of.size(); ++i) {
    if (written.of[i] + 1 == read.labels.size()) read.labels.push_back(written.labels[written.of[i]]);
    read.of.push_back(written.of[i] + 1);
  }
  return read;
}

constexpr const char* kStart = "<s>";  // as the pages of our own translators show it

}  // namespace

TokenPage encoder_page(const models::ModelFolder& folder, const std::string& title, text::Pieces source,
                       autograd::WeightType type) {
  const models::TextEncoder model = folder.text_encoder(type);
  std::vector<Tensor> weights(static_cast<std::size_t>(model.spec().stack.layers()));
  nn::Context inference;
  model.hidden(inference, std::span(&source.ids, 1), {},
               [&](std::string_view, std::size_t layer) { return &weights[layer]; });
  inspect::InspectPage page{.title = title};
  for (std::size_t n = 0; n < weights.size(); ++n)
    page.maps.push_back(
        map_of(fmt::format("encoder.self layer {}", n + 1), n, weights[n], source.tokens, source.tokens));
  return {std::move(page), std::move(source), {}};
}

TokenPage translator_page(const models::ModelFolder& folder, const std::string& title, text::Pieces source,
                          text::Pieces target, autograd::WeightType weights) {
  const auto model = folder.sequence_to_sequence(weights);
  const Ids read = read_before(folder.decoder_start(), target.ids);
  const models::Batch batch{.size = 1,
                            .source_len = std::ssize(source.ids),
                            .target_len = std::ssize(read),
                            .source = source.ids,
                            .source_lengths = {std::ssize(source.ids)},
                            .target_input = read,
                            .target_lengths = {std::ssize(read)}};
  models::Capture capture;
  nn::Context inference;
  model->hidden(inference, batch, &capture, nullptr);
  const std::vector<std::string> read_tokens = read_before<std::string>(kStart, target.tokens);
  inspect::InspectPage page{.title = title};
  for (const models::CapturedWeights& captured : capture) {
    const bool encoder = captured.name.starts_with("encoder"),
               cross = captured.name.starts_with("decoder.cross");
    page.maps.push_back(map_of(captured.name, static_cast<std::size_t>(captured.layer), captured.weights,
                               encoder ? source.tokens : target.tokens,
                               encoder || cross ? source.tokens : read_tokens));
  }
  return {std::move(page), std::move(source), std::move(target)};
}

inspect::InspectPage over_words(const TokenPage& given) {
  inspect::InspectPage page = given.page;
  const inspect::TokenGroups source{given.source.word_of, given.source.words},
      target{given.target.word_of, given.target.words};
  for (inspect::AttentionMap& map : page.maps) {
    const bool decoder = map.name.starts_with("decoder"), cross = map.name.starts_with("decoder.cross");
    map = inspect::merge_tokens(map, decoder ? target : source,
                                decoder && !cross ? words_before(target, kStart) : source);
  }
  return page;
}

}  // namespace fovea::cli
