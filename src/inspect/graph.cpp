#include "fovea/inspect/graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fovea/core/error.h"

namespace fovea::inspect {
namespace {

// The token without the marks of sub-words.
std::string_view bare(std::string_view token) {
  for (const std::string_view mark : {"▁", "##"}) {
    if (token.starts_with(mark) && token.size() > mark.size()) token.remove_prefix(mark.size());
  }
  if (token.ends_with("@@") && token.size() > 2) token.remove_suffix(2);
  return token;
}

const std::vector<std::string>& tokens_of(const AttentionMap& map, Side side) {
  return side == Side::query ? map.query_tokens : map.key_tokens;
}

std::vector<PickedWord> places_of(const AttentionMap& map, Side side, std::string_view word) {
  const std::vector<std::string>& tokens = tokens_of(map, side);
  std::vector<PickedWord> places;
  for (std::size_t first = 0; first < tokens.size(); ++first) {
    std::string_view left = word;
    for (std::size_t i = first; i < tokens.size() && !left.empty(); ++i) {
      // A piece that begins with ▁ begins a word, so "on" is not found in the pieces "▁o", "▁n".
      if (i > first && tokens[i].starts_with("▁")) break;
      const std::string_view piece = bare(tokens[i]);
      if (piece.empty() || !left.starts_with(piece)) break;
      left.remove_prefix(piece.size());
      if (left.empty()) places.push_back({side, first, i - first + 1});
    }
  }
  return places;
}

void check_choice(const AttentionMap& map, const std::vector<int>& heads, const PickedWord* word,
                  const std::string& function) {
  check(map, function);
  for (const int head : heads) {
    if (head < 0 || head >= map.heads) {
      throw InvalidArgument(function, "heads",
                            "0.." + std::to_string(map.heads - 1) + " in '" + map.name + "'",
                            std::to_string(head));
    }
  }
  if (word == nullptr) return;
  const std::size_t count = tokens_of(map, word->side).size();
  if (word->count < 1 || word->first >= count || word->count > count - word->first) {
    throw InvalidArgument(function, "word",
                          "tokens within the " + std::to_string(count) + " of '" + map.name + "'",
                          std::to_string(word->first) + " to " + std::to_string(word->first + word->count));
  }
}

float weight_at(const AttentionMap& map, int head, std::size_t query, std::size_t key) {
  return map.weights[(static_cast<std::size_t>(head) * map.rows() + query) * map.columns() + key];
}

bool holds(const PickedWord& word, std::size_t query, std::size_t key) {
  const std::size_t at = word.side == Side::query ? query : key;
  return at >= word.first && at < word.first + word.count;
}

}  // namespace

std::vector<int> heads_or_all(const AttentionMap& map, const std::vector<int>& heads) {
  if (!heads.empty()) return heads;
  std::vector<int> all(static_cast<std::size_t>(map.heads));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<PickedWord> find_word(const AttentionMap& map, std::string_view word) {
  std::vector<PickedWord> places = places_of(map, Side::query, word);
  return places.empty() ? places_of(map, Side::key, word) : places;
}

std::string text_of(const AttentionMap& map, const PickedWord& word) {
  const std::vector<std::string>& tokens = tokens_of(map, word.side);
  std::string text;
  for (std::size_t i = word.first; i < std::min(tokens.size(), word.first + word.count); ++i)
    text += bare(tokens[i]);
  return text;
}

std::vector<Arc> arcs_of(const AttentionMap& map, const std::vector<int>& heads, const PickedWord* word,
                         float least) {
  check_choice(map, heads, word, "arcs_of");
  std::vector<Arc> arcs;
  for (const int head : heads_or_all(map, heads)) {
    for (std::size_t query = 0; query < map.rows(); ++query) {
      for (std::size_t key = 0; key < map.columns(); ++key) {
        const float weight = weight_at(map, head, query, key);
        if (!std::isfinite(weight) || weight < least || (word != nullptr && !holds(*word, query, key)))
          continue;
        arcs.push_back({query, key, head, weight});
      }
    }
  }
  std::stable_sort(arcs.begin(), arcs.end(), [](const Arc& a, const Arc& b) { return a.weight < b.weight; });
  return arcs;
}

std::vector<float> shares_of(const AttentionMap& map, const std::vector<int>& heads, const PickedWord& word) {
  check_choice(map, heads, &word, "shares_of");
  const bool looks = word.side == Side::query;
  const std::size_t others = looks ? map.columns() : map.rows();
  std::vector<float> shares;
  for (const int head : heads_or_all(map, heads)) {
    for (std::size_t other = 0; other < others; ++other) {
      double sum = 0;
      for (std::size_t i = word.first; i < word.first + word.count; ++i)
        sum += looks ? weight_at(map, head, i, other) : weight_at(map, head, other, i);
      shares.push_back(static_cast<float>(looks ? sum / static_cast<double>(word.count) : sum));
    }
  }
  return shares;
}

}  // namespace fovea::inspect
