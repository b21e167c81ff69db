#include "cli/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fovea::cli {
namespace {

// Of a recurrence that reads both ways the decays of each way are half of the list.
std::string decays_of(const models::CapturedWeights& captured, bool both_ways) {
  const Tensor& all = captured.log_decays;
  if (!all || !both_ways) return decays_text(all);
  const auto half = [&](std::int64_t way) {
    return Tensor::copy_of(ConstTensorView(all).slice(0, way * all.size(0) / 2, all.size(0) / 2));
  };
  return decays_text(half(0)) + "; from right to left" + decays_text(half(1));
}

}  // namespace

void make_shares(Tensor& weights) {
  const std::int64_t columns = weights.size(3);
  for (std::int64_t row = 0; row < weights.count() / columns; ++row) {
    float* w = weights.data<float>() + row * columns;
    float sum = 0.0f;
    for (std::int64_t j = 0; j < columns; ++j) sum += std::abs(w[j]);
    for (std::int64_t j = 0; j < columns; ++j) w[j] = sum > 0.0f ? std::abs(w[j]) / sum : 0.0f;
  }
}

std::string decays_text(const Tensor& log_decays) {
  if (!log_decays) return "";
  if (log_decays.shape().rank() == 2) {
    const float* all = log_decays.data<float>();
    const auto [least, most] = std::minmax_element(all, all + log_decays.count());
    return fmt::format("; decay a token, of {} channels: {:.4g} to {:.4g}", log_decays.size(0),
                       std::exp(*least), std::exp(*most));
  }
  std::string list;
  for (std::int64_t h = 0; h < log_decays.count(); ++h)
    list += fmt::format("{}{:.4g}", h > 0 ? ", " : "", std::exp(log_decays.data<float>()[h]));
  return "; decay a token, by head: " + list;
}

std::string kept_text(const models::LayerKeeps& keeps, std::int64_t tokens) {
  if (keeps.state_bytes > 0 && keeps.bytes_per_token > 0)
    return fmt::format("{} bytes of keys and values, and {} bytes of the last block, whatever the length",
                       keeps.bytes_per_token * tokens, keeps.state_bytes);
  if (keeps.state_bytes > 0)
    return fmt::format("a state of {} bytes, whatever the length", keeps.state_bytes);
  return fmt::format("{} bytes of keys and values", keeps.bytes_per_token * tokens);
}

inspect::InspectPage page_of(train::Translator& translator, const std::string& title,
                             const std::string& source, const std::string& target) {
  auto seen = translator.inspect(source, target);
  const std::vector<models::LayerKeeps> keeps = translator.model().decoder_keeps();
  const auto tokens = std::ssize(seen.target_pieces);
  inspect::InspectPage page{title, source, target, {}, {}};
  for (models::CapturedWeights& captured : seen.maps) {
    const bool encoder = captured.name.starts_with("encoder"),
               cross = captured.name.starts_with("decoder.cross"),
               recurrence = captured.of == models::CapturedWeights::Of::recurrence;
    const auto layer = static_cast<std::size_t>(captured.layer);
    if (recurrence && encoder)
      page.facts.emplace_back(captured.name, "reads both ways" + decays_of(captured, true));
    else if (recurrence)
      page.facts.emplace_back(captured.name, kept_text(keeps.at(layer), tokens) + decays_of(captured, false));
    else if (captured.name.starts_with("decoder.self") && keeps.at(layer).state_bytes > 0)
      page.facts.emplace_back(captured.name, kept_text(keeps.at(layer), tokens));
    if (!captured.weights) continue;  // each channel of Mamba has weights of its own
    if (recurrence) make_shares(captured.weights);
    // A decoder row is the word being written; its keys are the words it has read, <s> first.
    std::vector<std::string> read = seen.target_pieces;
    read.pop_back();
    read.insert(read.begin(), "<s>");
    const float* weights = captured.weights.data<float>();
    page.maps.push_back({captured.name, captured.layer, encoder ? seen.source_pieces : seen.target_pieces,
                         encoder || cross ? seen.source_pieces : read,
                         static_cast<int>(captured.weights.size(1)),
                         std::vector<float>(weights, weights + captured.weights.count())});
  }
  return page;
}

}  // namespace fovea::cli
