// Maps over words in place of tokens, and maps as numbers for other programs.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fovea/core/error.h"
#include "fovea/inspect/data.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

void check_groups(const char* argument, const TokenGroups& groups, std::size_t tokens) {
  const auto refuse = [&](std::string expected, std::string got) {
    throw InvalidArgument("merge_tokens", argument, std::move(expected), std::move(got));
  };
  if (groups.of.size() != tokens)
    refuse("a word for each of " + std::to_string(tokens) + " tokens", std::to_string(groups.of.size()));
  std::size_t words = 0;
  for (const std::size_t word : groups.of) {
    const bool same = words > 0 && word == words - 1;
    if (!same && word != words++) refuse("words numbered from 0 and without gaps", std::to_string(word));
  }
  if (words != groups.labels.size())
    refuse("a label for each of " + std::to_string(words) + " words", std::to_string(groups.labels.size()));
}

// The shortest digits that give the same f32 again.
void append(std::string& text, float weight) {
  if (!std::isfinite(weight)) {
    text += "null";
    return;
  }
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, weight);
  text.append(digits, end);
}

std::string list_of(const std::vector<std::string>& tokens) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& token : tokens) list.push_back(valid_utf8(token));
  return list.dump();
}

}  // namespace

AttentionMap merge_tokens(const AttentionMap& map, const TokenGroups& queries, const TokenGroups& keys) {
  check(map, "merge_tokens");
  check_groups("queries", queries, map.rows());
  check_groups("keys", keys, map.columns());
  AttentionMap merged{.name = map.name,
                      .layer = map.layer,
                      .query_tokens = queries.labels,
                      .key_tokens = keys.labels,
                      .heads = map.heads,
                      .weights = {}};
  std::vector<double> sums(static_cast<std::size_t>(map.heads) * merged.rows() * merged.columns());
  std::vector<double> counts(merged.rows());
  for (const std::size_t word : queries.of) ++counts[word];
  const float* weight = map.weights.data();
  for (std::size_t head = 0; head < static_cast<std::size_t>(map.heads); ++head) {
    for (const std::size_t query : queries.of) {
      double* row = sums.data() + (head * merged.rows() + query) * merged.columns();
      for (const std::size_t key : keys.of) row[key] += *weight++;
    }
  }
  merged.weights.reserve(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i)
    merged.weights.push_back(static_cast<float>(sums[i] / counts[i / merged.columns() % merged.rows()]));
  return merged;
}

std::string to_json(const AttentionMap& map) {
  check(map, "to_json");
  std::string text = "{\"name\":" + nlohmann::json(valid_utf8(map.name)).dump() +
                     ",\"layer\":" + std::to_string(map.layer) + ",\"heads\":" + std::to_string(map.heads) +
                     ",\"queries\":" + list_of(map.query_tokens) + ",\"keys\":" + list_of(map.key_tokens) +
                     ",\"weights\":[";
  std::size_t at = 0;
  for (int head = 0; head < map.heads; ++head) {
    text += head > 0 ? ",[" : "[";
    for (std::size_t row = 0; row < map.rows(); ++row) {
      text += row > 0 ? ",[" : "[";
      for (std::size_t column = 0; column < map.columns(); ++column) {
        if (column > 0) text += ',';
        append(text, map.weights[at++]);
      }
      text += ']';
    }
    text += ']';
  }
  return text + "]}";
}

}  // namespace fovea::inspect
