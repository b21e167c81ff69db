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
  const std::string_view all = word, letters = all.substr(std::min(all.find_first_not_of('-'), all.size()));
  if (letters.empty()) return "";
  // The shortest name that fits; "" if none does.
  const auto shortest = [&](auto&& fits) {
    const std::string* found = nullptr;
    for (const std::string& name : names) {
      if (fits(name) && (!found || name.size() < found->size())) found = &name;
    }
    return found ? *found : std::string();
  };
  const auto beginning_with = [&](std::string_view start, std::size_t least_letters) {
    if (letters.size() < least_letters) return std::string();  // many names begin with two letters
    return shortest([&](const std::string& name) { return name.starts_with(start); });
  };
  if (const std::string longer = beginning_with(all, 3); !longer.empty()) return longer;
  const std::string end = "-" + std::string(letters);
  const std::string whole = shortest([&](const std::string& name) { return name.ends_with(end); });
  if (!whole.empty()) return whole;
  const auto similar =
      std::ranges::min_element(names, {}, [&](const auto& name) { return edit_distance(name, word); });
  if (similar != names.end() && edit_distance(*similar, word) <= 1 + word.size() / 4) return *similar;
  return beginning_with(all.substr(0, all.size() - 1), 4);
}

}  // namespace fovea::cli
