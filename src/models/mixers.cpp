// The names of mixers, in configs and options of commands.
#include <algorithm>
#include <array>
#include <charconv>

#include "core/excerpt.h"
#include "models/configs.h"

namespace fovea::models {
namespace {

constexpr std::array<std::string_view, 9> names{"attention", "linear", "retention", "gla",      "gated_delta",
                                                "mamba2",    "mamba",  "rwkv7",     "performer"};

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

}  // namespace fovea::models
