#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "fovea/inspect/graph.h"
#include "inspect/dot_canvas.h"
#include "inspect/pen.h"

namespace fovea::inspect {
namespace {

constexpr int kNumber = 5;               // columns of a weight and the space beside it
constexpr int kNarrow = 24, kWide = 64;  // columns of the strokes
constexpr std::size_t kMostSpaced = 12;  // a graph of more words has no empty lines between them
constexpr double kLeast = 0.02;          // of a selected word: weaker strokes are not drawn
constexpr double kDotted = 0.1, kAlso = 0.25;

std::string two_digits(double weight) {
  if (!std::isfinite(weight)) return std::isnan(weight) ? " NaN" : weight > 0 ? " inf" : "-inf";
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", std::clamp(weight, -9.99, 999.0));
  return text;
}

// The weights of some heads, [heads, pairs]. A pair of words has one stroke for all heads.
struct HeadWeights {
  std::vector<int> heads;  // counted from 0, in the map
  std::vector<float> weights;
  std::size_t pairs = 0;

  float at(std::size_t head, std::size_t pair) const { return weights[head * pairs + pair]; }
  double mean(std::size_t pair) const {
    double sum = 0;
    for (std::size_t head = 0; head < heads.size(); ++head) sum += at(head, pair);
    return sum / static_cast<double>(heads.size());
  }
  // The head that gives the largest part.
  int strongest(std::size_t pair) const {
    std::size_t best = 0;
    for (std::size_t head = 1; head < heads.size(); ++head) {
      if (at(head, pair) > at(best, pair)) best = head;
    }
    return heads[best];
  }
};

// A map of one head has one colour, which need not be the first: so it is in pictures too.
int series_of(const AttentionMap& map, int head) {
  return map.heads > 1 ? head : 2;
}

// Two columns of words, and the strokes between them.
class Graph {
 public:
  Graph(const AttentionMap& map, const PickedWord* word, const Pen& pen) : map_(map), word_(word), pen_(pen) {
    Pen narrow = pen;
    narrow.max_label = std::min(pen.max_label, pen.width / 4);  // two labels, and strokes between them
    queries_.labels = make_labels(map.query_tokens, narrow);
    keys_.labels = make_labels(map.key_tokens, narrow);
    for (Column* column : {&queries_, &keys_}) {
      for (const Label& label : column->labels) column->widest = std::max(column->widest, label.columns);
    }
    words_ = std::max(queries_.labels.size(), keys_.labels.size());
    spacing_ = word == nullptr && words_ <= kMostSpaced ? 2 : 1;
  }

  int lines() const { return (static_cast<int>(words_) - 1) * spacing_ + 1; }
  /// The columns that words and their brackets take.
  int width_of_words() const { return queries_.widest + keys_.widest + 4; }

  void add(double query, double key, double weight, int head) {
    arcs_.push_back({.weight = weight,
                     .stroke = {.from = line_of(Side::query, query),
                                .to = line_of(Side::key, key),
                                .dotted = weight < kDotted,
                                .series = series_of(map_, head)}});
  }

  /// All lines. `numbers` gives the numbers of a word; they stand beside the words of `side`, and an empty
  /// line has `width` spaces in their place.
  std::string draw(int columns, Side side, int width,
                   const std::function<std::string(std::size_t)>& numbers) const {
    const DotCanvas canvas = strokes(columns);
    std::string out;
    for (int line = 0; line < lines(); ++line) {
      const int query = word_at(Side::query, line), key = word_at(Side::key, line);
      const int numbered = side == Side::query ? query : key;
      const std::string beside = numbered < 0 ? spaces(width) : numbers(static_cast<std::size_t>(numbered));
      std::string text = label(Side::query, query) + canvas.line(line, pen_) + label(Side::key, key);
      text = side == Side::query ? beside + text : text + beside;
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + '\n';
    }
    return out;
  }

 private:
  struct Column {
    std::vector<Label> labels;
    int widest = 0;
  };
  struct Arc {
    double weight;
    Stroke stroke;
  };

  const Column& column(Side side) const { return side == Side::query ? queries_ : keys_; }
  // The shorter column stands at the middle of the longer one.
  int first_of(Side side) const { return static_cast<int>((words_ - column(side).labels.size()) / 2); }
  double line_of(Side side, double word) const { return spacing_ * (first_of(side) + word); }
  int word_at(Side side, int line) const {
    const int word = line / spacing_ - first_of(side);
    const bool there =
        line % spacing_ == 0 && word >= 0 && word < static_cast<int>(column(side).labels.size());
    return there ? word : -1;
  }

  DotCanvas strokes(int columns) const {
    DotCanvas canvas(columns, lines());
    const int thickest = word_ != nullptr ? DotCanvas::kRows : spacing_ == 1 ? 2 : 3;
    std::vector<Arc> arcs = arcs_;
    std::stable_sort(arcs.begin(), arcs.end(),
                     [](const Arc& a, const Arc& b) { return a.weight < b.weight; });
    for (Arc& arc : arcs) {
      arc.stroke.dots = std::min(thickest, 1 + static_cast<int>(std::clamp(arc.weight, 0.0, 1.0) * thickest));
      canvas.draw(arc.stroke);
    }
    return canvas;
  }

  // A word in its column, with brackets if it is selected.
  std::string label(Side side, int word) const {
    const Column& in = column(side);
    if (word < 0) return spaces(in.widest + 2);
    const Label& label = in.labels[static_cast<std::size_t>(word)];
    const auto at = static_cast<std::size_t>(word);
    const bool picked =
        word_ != nullptr && word_->side == side && at >= word_->first && at < word_->first + word_->count;
    std::string text = picked ? '[' + label.text + ']' : ' ' + label.text + ' ';
    if (picked && pen_.colour) text = "\x1b[1m" + text + "\x1b[0m";
    const std::string padding = spaces(in.widest - label.columns);
    return side == Side::query ? padding + text : text + padding;
  }

  const AttentionMap& map_;
  const PickedWord* word_;
  const Pen& pen_;
  Column queries_, keys_;
  std::size_t words_ = 0;
  int spacing_ = 1;
  std::vector<Arc> arcs_;
};

// The number of a head, counted from 1 and in its colour, at the right end of `width` columns.
std::string name_of(const AttentionMap& map, int head, int width, const Pen& pen) {
  const std::string name = std::to_string(head + 1), padding = spaces(width - static_cast<int>(name.size()));
  if (!pen.colour) return padding + name;
  return padding + foreground(series_on_any_ground(series_of(map, head)), pen) + name + "\x1b[0m";
}

std::string legend(const AttentionMap& map, const std::vector<int>& heads, const Pen& pen) {
  if (!pen.colour || heads.size() < 2) return {};
  std::string out = "heads";
  int used = 5;
  for (const int head : heads) {
    const int needed = 1 + static_cast<int>(std::to_string(head + 1).size());
    if (used + needed > pen.width) {
      out += "\n     ";
      used = 5;
    }
    used += needed;
    out += name_of(map, head, needed, pen);
  }
  return out + '\n';
}

// A stroke between the word and each word of the other side. Beside that side stand the mean weight and, as
// far as the width allows, the weight of each head.
std::string picked_graph(const AttentionMap& map, const std::vector<int>& heads, const PickedWord& word,
                         const Pen& pen) {
  const bool looks = word.side == Side::query;
  const HeadWeights shares{heads, shares_of(map, heads, word), looks ? map.columns() : map.rows()};
  Graph graph(map, &word, pen);
  const double middle = static_cast<double>(word.first) + static_cast<double>(word.count - 1) / 2;
  for (std::size_t other = 0; other < shares.pairs; ++other) {
    const double weight = shares.mean(other), at = static_cast<double>(other);
    if (std::isfinite(weight) && weight >= kLeast)
      graph.add(looks ? middle : at, looks ? at : middle, weight, shares.strongest(other));
  }

  const int free = pen.width - graph.width_of_words() - kNumber, columns = std::min(kNarrow, free);
  const std::size_t named =
      heads.size() < 2 ? 0 : std::min(heads.size(), static_cast<std::size_t>((free - columns) / kNumber));
  // The mean stands next to the word.
  const auto in_order = [&](const std::string& mean, const std::string& by_head) {
    return looks ? ' ' + mean + by_head : by_head + mean;
  };
  std::string names;
  for (std::size_t head = 0; head < named; ++head)
    names +=
        looks ? name_of(map, heads[head], kNumber, pen) : name_of(map, heads[head], kNumber - 1, pen) + ' ';
  const auto numbers = [&](std::size_t other) {
    std::string by_head;
    for (std::size_t head = 0; head < named; ++head) {
      const std::string weight = two_digits(shares.at(head, other));
      by_head += looks ? ' ' + weight : weight + ' ';
    }
    return in_order(two_digits(shares.mean(other)), by_head);
  };

  const Label name = make_label(map.name, pen), token = make_label(text_of(map, word), pen);
  const std::string asked = looks ? "what " + token.text + " attends to" : "what attends to " + token.text;
  const bool one_line = name.columns + token.columns + 18 <= pen.width;
  std::string out = name.text + (one_line ? ": " : ":\n") + asked + '\n';
  if (named < heads.size()) out += legend(map, heads, pen);
  if (named > 0) out += spaces(looks ? graph.width_of_words() + columns : 0) + in_order("mean", names) + '\n';
  const int width = kNumber * static_cast<int>(named + 1);
  return out + graph.draw(columns, looks ? Side::key : Side::query, looks ? width : width - 1, numbers);
}

// All words. Each query has a stroke to its largest key and to every other key of at least kAlso. The number
// beside a query is its largest weight; one that is not finite comes first, because a reader must see it.
std::string whole_graph(const AttentionMap& map, const std::vector<int>& heads, const Pen& pen) {
  HeadWeights weights{heads, {}, map.rows() * map.columns()};
  for (const int head : heads) {
    const auto first = map.weights.begin() + static_cast<std::ptrdiff_t>(head * weights.pairs);
    weights.weights.insert(weights.weights.end(), first, first + static_cast<std::ptrdiff_t>(weights.pairs));
  }
  Graph graph(map, nullptr, pen);
  std::vector<double> largest(map.rows());
  for (std::size_t query = 0; query < map.rows(); ++query) {
    std::vector<double> means(map.columns());
    for (std::size_t key = 0; key < means.size(); ++key)
      means[key] = weights.mean(query * means.size() + key);
    const auto rank = [](double a, double b) { return std::isfinite(a) && (!std::isfinite(b) || a < b); };
    const auto most = std::max_element(means.begin(), means.end(), rank);
    largest[query] = *most;
    for (auto at = means.begin(); at != means.end(); ++at) {
      if (!std::isfinite(*at) || (at != most && *at < kAlso)) continue;
      const auto key = static_cast<std::size_t>(at - means.begin());
      graph.add(static_cast<double>(query), static_cast<double>(key), *at,
                weights.strongest(query * means.size() + key));
    }
  }
  const int columns =
      std::min(std::clamp(2 * graph.lines(), kNarrow, kWide), pen.width - graph.width_of_words() - kNumber);
  return make_label(map.name, pen).text + ": what each attends to most\n" + legend(map, heads, pen) +
         graph.draw(columns, Side::query, kNumber - 1,
                    [&](std::size_t query) { return two_digits(largest[query]); });
}

}  // namespace

std::string draw_terminal_graph(const AttentionMap& map, const std::vector<int>& heads,
                                const std::vector<PickedWord>& words, const TerminalStyle& style) {
  (void)arcs_of(map, heads, nullptr, 2.0F);  // checks the map and the heads
  const Pen pen = resolve(style);
  if (map.rows() == 0 || map.columns() == 0) return "(empty matrix)\n";
  const std::vector<int> chosen = heads_or_all(map, heads);
  if (words.empty()) return whole_graph(map, chosen, pen);
  std::string out;
  for (const PickedWord& word : words)
    out += (out.empty() ? "" : "\n") + picked_graph(map, chosen, word, pen);
  return out;
}

}  // namespace fovea::inspect
