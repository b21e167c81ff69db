#include "cli/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>

namespace fovea::cli {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(const std::vector<std::string>& names, const std::string& word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const auto beginning_with = [&](std::string_view start) {
    if (start.size() < dashes + 3) return names.end();  // many names begin with two letters
    return std::ranges::find_if(names, [&](const std::string& name) { return name.starts_with(start); });
  };
  const auto longer = beginning_with(word);
  if (longer != names.end()) return *longer;
  const auto similar =
      std::ranges::min_element(names, {}, [&](const auto& name) { return edit_distance(name, word); });
  if (similar != names.end() && edit_distance(*similar, word) <= 1 + word.size() / 4) return *similar;
  const auto related = beginning_with(std::string_view(word).substr(0, word.empty() ? 0 : word.size() - 1));
  return related != names.end() ? *related : "";
}

}  // namespace fovea::cli
