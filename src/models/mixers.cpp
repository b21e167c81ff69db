// Mixers: their names in configs and options of commands, their sizes in models, and what they keep.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/excerpt.h"
#include "models/configs.h"
#include "models/stack.h"

namespace fovea::models {
namespace {

constexpr std::array<std::string_view, 12> names{"attention",   "linear", "retention", "gla",
                                                 "gated_delta", "mamba2", "mamba",     "rwkv7",
                                                 "performer",   "pooled", "linformer", "merging"};

std::string quoted(std::string_view text) {
  return "'" + excerpt(text) + "'";
}

// `part` is what is wrong in `text`.
[[noreturn]] void refuse(const std::string& expected, std::string_view part, std::string_view text) {
  throw InvalidArgument("parse_mixers", "text", expected,
                        part == text ? quoted(text) : quoted(part) + " in " + quoted(text));
}

LayerMixer named(std::string_view name, std::string_view text) {
  if (const std::optional<LayerMixer> found = find_mixer(name)) return *found;
  refuse("one of " + mixer_names() + ", separated by commas", name, text);
}

// "name" or "name*count".
void add(std::string_view part, std::string_view text, std::int64_t most, std::vector<LayerMixer>& to) {
  const std::size_t star = part.find('*');
  std::int64_t count = 1;
  if (star != std::string_view::npos) {
    const std::string_view digits = part.substr(star + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc() || end != digits.data() + digits.size() || count < 1 || count > most)
      refuse("a count from 1 to " + std::to_string(most) + " behind *", part, text);
  }
  to.insert(to.end(), static_cast<std::size_t>(count), named(part.substr(0, star), text));
}

}  // namespace

std::string_view to_string(LayerMixer mixer) {
  return names.at(static_cast<std::size_t>(mixer));
}

bool reads_both_sides(LayerMixer mixer) {
  return mixer != LayerMixer::pooled && mixer != LayerMixer::linformer && mixer != LayerMixer::merging;
}

std::optional<LayerMixer> find_mixer(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<LayerMixer>(found - names.begin());
}

std::string mixer_names() {
  std::string list;
  for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

std::vector<LayerMixer> parse_mixers(std::string_view text, std::int64_t layers) {
  std::vector<LayerMixer> list;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    add(text.substr(begin, end - begin), text, layers, list);
    begin = end + 1;
  }
  const std::size_t length = list.size();
  if (layers < 1 || layers % std::ssize(list) != 0)
    throw InvalidArgument("parse_mixers", "text",
                          "a list whose length divides the " + std::to_string(layers) + " layers",
                          quoted(text) + ", of length " + std::to_string(length));
  while (std::ssize(list) < layers) list.push_back(list[list.size() - length]);
  return list;
}

namespace {

using By = nn::BlockAttentionOptions::By;

nn::Mixer mixer_of(LayerMixer mixer, std::int64_t dim, std::int64_t heads, const nn::Mixer& attention) {
  switch (mixer) {
    case LayerMixer::attention:
      return attention;
    case LayerMixer::linear:
      return nn::LinearAttentionOptions{.num_heads = heads};
    case LayerMixer::retention:
      return nn::RetentionOptions{.num_heads = heads};
    case LayerMixer::gla:
      return nn::GatedLinearAttentionOptions{.num_heads = heads, .key_dim = dim / heads};
    case LayerMixer::gated_delta:
      return nn::GatedDeltaOptions{.num_heads = heads};
    case LayerMixer::mamba2:
      return nn::Mamba2Options{.head_dim = 2 * dim / heads};
    case LayerMixer::mamba:
      return nn::MambaOptions{};
    case LayerMixer::rwkv7:
      return nn::Rwkv7Options{.head_dim = dim / heads};
    case LayerMixer::performer:
      return nn::PerformerOptions{.num_heads = heads};
    case LayerMixer::pooled:
      return nn::BlockAttentionOptions{.num_heads = heads, .by = By::means};
    case LayerMixer::linformer:
      return nn::BlockAttentionOptions{.num_heads = heads, .by = By::sums};
    case LayerMixer::merging:
      return nn::BlockAttentionOptions{.num_heads = heads, .by = By::mergings};
  }
  return attention;
}

std::vector<LayerKeeps::Decays> decays_of(const nn::RecurrentMixer& mixer) {
  const Tensor logs = mixer.resting_log_decays();
  std::vector<LayerKeeps::Decays> decays;
  for (std::int64_t head = 0; logs && head < logs.size(0); ++head) {
    const float* row = logs.data<float>() + head * logs.size(1);
    const auto [least, most] = std::minmax_element(row, row + logs.size(1));
    decays.push_back({std::exp(static_cast<double>(*least)), std::exp(static_cast<double>(*most))});
  }
  return decays;
}

}  // namespace

void set_mixers(nn::StackSpec& stack, std::span<const LayerMixer> mixers, std::int64_t heads, nn::Sees sees) {
  for (std::size_t n = 0; n < mixers.size(); ++n) {
    nn::BlockSpec& block = stack.blocks[n];
    block.mixer = mixer_of(mixers[n], stack.dim, heads, block.mixer);
    if (std::holds_alternative<nn::RecurrentOptions>(block.mixer)) block.recurrence_sees = sees;
  }
}

void check_mixers(const char* function, const char* argument, std::vector<LayerMixer>& mixers,
                  std::int64_t layers) {
  if (!mixers.empty() && std::ssize(mixers) != layers)
    throw InvalidArgument(function, argument, std::to_string(layers) + ", one for each layer, or none",
                          std::to_string(mixers.size()));
  if (std::ranges::all_of(mixers, [](LayerMixer mixer) { return mixer == LayerMixer::attention; }))
    mixers.clear();
}

std::vector<LayerKeeps> layers_keep(const nn::TransformerStack& stack) {
  std::vector<LayerKeeps> all;
  const std::vector<CacheLayer> layers = stack.cache_layers();
  for (std::size_t n = 0, open = stack.size(); n < stack.size(); ++n) {
    const auto element = static_cast<std::int64_t>(size_of(layers[n].dtype));
    LayerKeeps& layer = all.emplace_back();
    if (const nn::RecurrentMixer* recurrence = stack.recurrence(n)) {
      layer.mixer = nn::name_of(recurrence->options());
      layer.state_bytes = layers[n].head_dim * element;
      layer.decays = decays_of(*recurrence);
    } else {
      if (stack.block_attention(n)) layer.state_bytes = layers[open++].head_dim * element;
      layer.mixer = nn::mixer_name(stack.spec().of_layer(n).mixer);
      const std::int64_t value_dim = layers[n].value_dim < 0 ? layers[n].head_dim : layers[n].value_dim;
      layer.bytes_per_token = layers[n].num_kv_heads * (layers[n].head_dim + value_dim) * element;
    }
  }
  return all;
}

}  // namespace fovea::models
