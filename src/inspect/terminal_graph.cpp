#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "fovea/inspect/graph.h"
#include "inspect/pen.h"

namespace fovea::inspect {
namespace {

constexpr int kBar = 24;

std::string two_digits(double weight) {
  if (!std::isfinite(weight)) return std::isnan(weight) ? " NaN" : weight > 0 ? " inf" : "-inf";
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", std::clamp(weight, -9.99, 999.0));
  return text;
}

struct Chosen {
  std::vector<int> heads;
  std::vector<std::string> digits;  // a head's sign in a bar without colours: the last digit of its number
};

Chosen choose(const AttentionMap& map, const std::vector<int>& heads) {
  Chosen chosen{heads, {}};
  if (heads.empty()) {
    chosen.heads.resize(static_cast<std::size_t>(map.heads));
    std::iota(chosen.heads.begin(), chosen.heads.end(), 0);
  }
  for (const int head : chosen.heads) chosen.digits.push_back(std::to_string((head + 1) % 10));
  return chosen;
}

// kBar columns for a weight of 1, cut into the heads' parts: the boundaries are rounded, so that the parts
// add up.
std::string bar(const std::vector<float>& weights, const Chosen& chosen, const Pen& pen) {
  std::string out;
  double sum = 0;
  int drawn = 0;
  for (std::size_t h = 0; h < weights.size(); ++h) {
    if (std::isfinite(weights[h])) sum += std::max(0.0F, weights[h]) / static_cast<double>(weights.size());
    const int until = std::min(kBar, static_cast<int>(std::lround(kBar * sum)));
    if (until <= drawn) continue;
    if (pen.colour) {
      out += background(series_colour(chosen.heads[h], Theme::dark), pen) + spaces(until - drawn) + "\x1b[0m";
    } else {
      for (; drawn < until; ++drawn) out += chosen.digits[h];
    }
    drawn = until;
  }
  return out + spaces(kBar - drawn);
}

std::string heads_line(const Chosen& chosen, const Pen& pen) {
  if (chosen.heads.size() < 2) return {};
  std::string out = "heads";
  int used = 5;
  for (const int head : chosen.heads) {
    const std::string name = std::to_string(head + 1);
    const int needed = static_cast<int>(name.size()) + (pen.colour ? 3 : 1);
    if (used + needed > pen.width) {
      out += "\n     ";
      used = 5;
    }
    used += needed;
    // Black on the light colours of the dark theme.
    out += ' ';
    out += pen.colour ? background(series_colour(head, Theme::dark), pen) + "\x1b[30m " + name + " \x1b[0m"
                      : name;
  }
  return out + '\n';
}

// A bar for each token of the other side, and behind it what each head gives, as far as the width allows.
std::string picked_graph(const AttentionMap& map, const Chosen& chosen, const PickedWord& word,
                         const Pen& pen) {
  const bool looks = word.side == Side::query;
  const std::vector<float> shares = shares_of(map, chosen.heads, word);
  const std::vector<Label> labels = make_labels(looks ? map.key_tokens : map.query_tokens, pen);
  int widest = 0;
  for (const Label& label : labels) widest = std::max(widest, label.columns);
  const int free = pen.width - (2 + widest + 1 + 4 + 2 + kBar + 1);
  const std::size_t named = chosen.heads.size() < 2 ? 0 : static_cast<std::size_t>(std::max(0, free / 5));
  const Label name = make_label(map.name, pen), token = make_label(text_of(map, word), pen);
  const std::string asked = looks ? "what " + token.text + " attends to" : "what attends to " + token.text;
  const bool one_line = name.columns + token.columns + 18 <= pen.width;
  std::string out = name.text + (one_line ? ": " : ":\n") + asked + "\n" + heads_line(chosen, pen);
  for (std::size_t other = 0; other < labels.size(); ++other) {
    std::vector<float> weights;
    for (std::size_t h = 0; h < chosen.heads.size(); ++h)
      weights.push_back(shares[h * labels.size() + other]);
    double mean = 0;
    for (const float weight : weights) mean += weight / static_cast<double>(weights.size());
    out += spaces(2 + widest - labels[other].columns) + labels[other].text + ' ' + two_digits(mean) + "  " +
           bar(weights, chosen, pen);
    for (std::size_t h = 0; h < std::min(named, weights.size()); ++h) out += ' ' + two_digits(weights[h]);
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

// Two columns: who looks, and the three it looks at most.
std::string whole_graph(const AttentionMap& map, const Chosen& chosen, const Pen& pen) {
  const std::vector<Label> queries = make_labels(map.query_tokens, pen),
                           keys = make_labels(map.key_tokens, pen);
  int widest = 0;
  for (const Label& label : queries) widest = std::max(widest, label.columns);
  std::string out = make_label(map.name, pen).text + ": what each attends to most\n";
  for (std::size_t query = 0; query < queries.size(); ++query) {
    std::vector<double> mean(keys.size());
    for (const int head : chosen.heads) {
      for (std::size_t key = 0; key < keys.size(); ++key) {
        mean[key] +=
            map.weights[(static_cast<std::size_t>(head) * queries.size() + query) * keys.size() + key] /
            static_cast<double>(chosen.heads.size());
      }
    }
    std::vector<std::size_t> order(keys.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // Weights that are not finite come first, because a reader must see them.
    const auto rank = [&](std::size_t key) { return std::isfinite(mean[key]) ? mean[key] : 1e300; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
    out += spaces(2 + widest - queries[query].columns) + queries[query].text + (pen.unicode ? " →" : " ->");
    int used = 2 + widest + 3;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i) {
      const Label& key = keys[order[i]];
      const int needed = key.columns + 8;
      if (used + needed > pen.width) break;
      out += "  " + key.text + ' ' + two_digits(mean[order[i]]);
      used += needed;
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string draw_terminal_graph(const AttentionMap& map, const std::vector<int>& heads,
                                const std::vector<PickedWord>& words, const TerminalStyle& style) {
  (void)arcs_of(map, heads, nullptr, 2.0F);  // checks the map and the heads
  const Pen pen = resolve(style);
  const Chosen chosen = choose(map, heads);
  if (map.rows() == 0 || map.columns() == 0) return "(empty matrix)\n";
  if (words.empty()) return whole_graph(map, chosen, pen);
  std::string out;
  for (const PickedWord& word : words)
    out += (out.empty() ? "" : "\n") + picked_graph(map, chosen, word, pen);
  return out;
}

}  // namespace fovea::inspect
