#include "fovea/pictures/graph.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "fovea/core/error.h"
#include "pictures/parts.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::Anchor;
using inspect::Arc;
using inspect::AttentionMap;
using inspect::Drawing;
using inspect::Paint;
using inspect::Path;
using inspect::PickedWord;
using inspect::Point;
using inspect::Rectangle;
using inspect::Side;
using inspect::Step;
using inspect::Text;
using inspect::Tone;
using inspect::Weight;

constexpr double kWord = 14, kLine = 24, kGround = 20, kPad = 6, kLongestWord = 180, kBetween = 190;
constexpr double kHeading = 24, kLegend = 22, kPanelGap = 36, kBarLength = 90, kNumber = 34, kSmall = 11.5,
                 kHeadName = 66;
// Weaker arcs than these are no longer seen among so many.
constexpr std::size_t kMostArcs = 4000;

// One panel: where its columns are. The query column is flush right at `left`, the key column flush left at
// `right`, both relative to the panel.
struct Layout {
  double queries = 0, keys = 0;  // the widths of the columns of words
  double bars_left = 0, bars_right = 0, width = 0, height = 0;
  double left() const { return bars_left + queries + 2 * kPad; }
  double right() const { return left() + kBetween; }
};

Layout lay_out(const AttentionMap& map, const PickedWord* word) {
  Layout layout{.queries = longest(map.query_tokens, kWord, kLongestWord),
                .keys = longest(map.key_tokens, kWord, kLongestWord)};
  constexpr double kBars = kNumber + kBarLength + 10;
  if (word != nullptr) (word->side == Side::query ? layout.bars_right : layout.bars_left) = kBars;
  layout.width = layout.right() + layout.keys + 2 * kPad + layout.bars_right;
  layout.height = kHeading + 4 + kLine * static_cast<double>(std::max(map.rows(), map.columns()));
  return layout;
}

struct Panel {
  const AttentionMap& map;
  const std::vector<int>& heads;
  const PickedWord* word;
  const Layout& layout;
  double x, y;

  std::size_t lines() const { return std::max(map.rows(), map.columns()); }
  // The middle of a word's line; the shorter column stands at the middle of the longer one.
  double middle(Side side, std::size_t index) const {
    const std::size_t count = side == Side::query ? map.rows() : map.columns();
    return y + kHeading + 4 +
           kLine * (static_cast<double>(lines() - count) / 2 + static_cast<double>(index) + 0.5);
  }
  bool picked(Side side, std::size_t index) const {
    return word != nullptr && word->side == side && index >= word->first && index < word->first + word->count;
  }
};

// A map of one head has one colour, which need not be the first.
Paint head_paint(const AttentionMap& map, int head, double opacity = 1) {
  return {inspect::Series{map.heads > 1 ? head : 2}, opacity};
}

void put_arcs(Drawing& drawing, const Panel& panel) {
  std::vector<Arc> arcs = arcs_of(panel.map, panel.heads, panel.word);
  if (arcs.size() > kMostArcs) arcs.erase(arcs.begin(), arcs.end() - kMostArcs);
  const double from = panel.x + panel.layout.left() + 2, to = panel.x + panel.layout.right() - 2;
  // The heads' arcs between the same words run beside each other.
  const double count = static_cast<double>(panel.heads.size()), lane = std::min(4.0, 14 / count);
  for (const Arc& arc : arcs) {
    const auto place = std::find(panel.heads.begin(), panel.heads.end(), arc.head) - panel.heads.begin();
    const double shift = (static_cast<double>(place) - (count - 1) / 2) * lane;
    const Point begin{from, panel.middle(Side::query, arc.query) + shift},
        end{to, panel.middle(Side::key, arc.key) + shift};
    const double weight = std::clamp<double>(arc.weight, 0, 1), bend = (from + to) / 2;
    drawing.items.push_back(Path{
        .steps = {{.kind = Step::Kind::move, .to = begin},
                  {.kind = Step::Kind::curve, .to = end, .first = {bend, begin.y}, .second = {bend, end.y}}},
        .stroke = head_paint(panel.map, arc.head, panel.word ? 0.4 + 0.5 * weight : 0.12 + 0.65 * weight),
        .width = 0.4 + 7.6 * weight});
  }
}

void put_word(Drawing& drawing, const Panel& panel, Side side, std::size_t index, double share) {
  const bool query = side == Side::query, picked = panel.picked(side, index);
  const bool grounded = panel.word != nullptr && panel.word->side != side;
  const std::string& token = query ? panel.map.query_tokens[index] : panel.map.key_tokens[index];
  const double width = std::min(std::ceil(text_width(token, kWord, picked ? Weight::bold : Weight::normal)),
                                query ? panel.layout.queries : panel.layout.keys);
  const double y = panel.middle(side, index);
  const double edge = panel.x + (query ? panel.layout.left() - kPad : panel.layout.right() + kPad);
  const Rectangle ground{.x = (query ? edge - width : edge) - 4,
                         .y = y - kGround / 2,
                         .width = width + 8,
                         .height = kGround,
                         .fill = {inspect::OnRamp{share}},
                         .radius = 4};
  if (picked) {
    Rectangle frame = ground;
    constexpr double kThick = 1.5;
    frame.x -= kThick, frame.y -= kThick, frame.width += 2 * kThick, frame.height += 2 * kThick;
    frame.fill = {Tone::accent};
    frame.radius += kThick;
    drawing.items.push_back(frame);
    drawing.items.push_back(Rectangle{.x = ground.x,
                                      .y = ground.y,
                                      .width = ground.width,
                                      .height = ground.height,
                                      .fill = {Tone::paper},
                                      .radius = ground.radius});
  } else if (grounded) {
    drawing.items.push_back(ground);
  }
  drawing.items.push_back(
      Text{.x = edge,
           .y = base_line(y, kWord),
           .text = token,
           .size = kWord,
           .paint = grounded ? Paint{inspect::TextOnRamp{share}}
                             : Paint{panel.word == nullptr || picked ? Tone::ink : Tone::quiet},
           .anchor = query ? Anchor::end : Anchor::start,
           .weight = picked ? Weight::bold : Weight::normal,
           .limit = query ? panel.layout.queries : panel.layout.keys});
}

// The mean weight in digits, and as a bar in which each head has its part.
void put_bar(Drawing& drawing, const Panel& panel, Side side, std::size_t index,
             const std::vector<double>& parts) {
  const double mean = std::accumulate(parts.begin(), parts.end(), 0.0), y = panel.middle(side, index);
  const bool right = side == Side::key;
  const double start = panel.x + (right ? panel.layout.right() + panel.layout.keys + 2 * kPad + 4
                                        : panel.layout.bars_left - 4);
  const double sign = right ? 1 : -1;
  if (!(mean >= 0.005) && std::isfinite(mean)) return;  // 0.00 says nothing
  char number[16];
  std::snprintf(number, sizeof number, "%.2f", mean);
  drawing.items.push_back(Text{.x = right ? start + kNumber - 6 : start,
                               .y = base_line(y, kSmall),
                               .text = number,
                               .size = kSmall,
                               .paint = {Tone::quiet},
                               .anchor = Anchor::end});
  double at = start + sign * kNumber;
  for (std::size_t h = 0; h < parts.size(); ++h) {
    const double length = kBarLength * std::clamp(std::isfinite(parts[h]) ? parts[h] : 0.0, 0.0, 1.0);
    if (length < 0.1) continue;
    drawing.items.push_back(Rectangle{.x = right ? at : at - length,
                                      .y = y - 5,
                                      .width = length,
                                      .height = 10,
                                      .fill = head_paint(panel.map, panel.heads[h])});
    at += sign * length;
  }
}

void put_words(Drawing& drawing, const Panel& panel) {
  const AttentionMap& map = panel.map;
  for (const Side side : {Side::query, Side::key}) {
    const std::size_t count = side == Side::query ? map.rows() : map.columns();
    const bool other = panel.word != nullptr && panel.word->side != side;
    const std::vector<float> shares =
        other ? shares_of(map, panel.heads, *panel.word) : std::vector<float>(count * panel.heads.size());
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> parts;
      for (std::size_t h = 0; h < panel.heads.size(); ++h)
        parts.push_back(shares[h * count + i] / static_cast<double>(panel.heads.size()));
      put_word(drawing, panel, side, i, std::accumulate(parts.begin(), parts.end(), 0.0));
      if (other) put_bar(drawing, panel, side, i, parts);
    }
  }
}

std::string heading_of(const AttentionMap& map, const PickedWord* word) {
  if (word == nullptr) return map.name;
  const std::string text = "“" + inspect::text_of(map, *word) + "”";
  return word->side == Side::query ? "what " + text + " attends to" : "what attends to " + text;
}

void put_panel(Drawing& drawing, const Panel& panel) {
  drawing.items.push_back(Text{.x = panel.x,
                               .y = panel.y + 14,
                               .text = heading_of(panel.map, panel.word),
                               .size = 14,
                               .paint = {Tone::ink},
                               .weight = Weight::bold,
                               .limit = panel.layout.width});
  put_arcs(drawing, panel);
  put_words(drawing, panel);
}

// The colours of the heads, in lines of at most `width`.
double put_legend(Drawing& drawing, const AttentionMap& map, const std::vector<int>& heads, Point at,
                  double width) {
  if (map.heads < 2) return 0;
  double x = at.x, y = at.y;
  for (const int head : heads) {
    if (x > at.x && x + kHeadName > at.x + width) {
      x = at.x;
      y += 18;
    }
    drawing.items.push_back(
        Rectangle{.x = x, .y = y + 3, .width = 11, .height = 11, .fill = head_paint(map, head), .radius = 2});
    drawing.items.push_back(Text{.x = x + 16,
                                 .y = y + 12.5,
                                 .text = "head " + std::to_string(head + 1),
                                 .size = kSmall,
                                 .paint = {Tone::quiet}});
    x += kHeadName;
  }
  return y + kLegend - at.y;
}

}  // namespace

namespace {

constexpr double kWidest = 1100;

// What draw_graph draws of one map: its panels in lines.
struct Band {
  const AttentionMap* map = nullptr;
  std::vector<int> heads;
  std::vector<Layout> panels;  // one a word
  double width = 0;
};

Band lay_out_band(const AttentionMap& map, const GraphOptions& options,
                  const std::vector<const PickedWord*>& words) {
  Band band{.map = &map, .heads = heads_or_all(map, options.heads), .panels = {}};
  double x = 0;
  for (const PickedWord* word : words) {
    (void)arcs_of(map, options.heads, word, 2.0F);  // checks the map, the heads and the word
    band.panels.push_back(lay_out(map, word));
    if (x > 0 && x + band.panels.back().width > kWidest) x = 0;
    x += band.panels.back().width + kPanelGap;
    band.width = std::max(band.width, x - kPanelGap);
  }
  return band;
}

double put_band(Drawing& drawing, std::size_t index, const Band& band,
                const std::vector<const PickedWord*>& words, double y) {
  if (words[0] != nullptr) {  // the panels' headings name the word, not the map
    drawing.items.push_back(Text{.x = kMargin,
                                 .y = y + 12,
                                 .text = band.map->name,
                                 .size = 13,
                                 .paint = {Tone::quiet},
                                 .limit = drawing.width - 2 * kMargin});
    y += 22;
  }
  double x = kMargin, height = 0;
  for (std::size_t w = 0; w < words.size(); ++w) {
    const Layout& layout = band.panels[w];
    if (x > kMargin && x - kMargin + layout.width > kWidest) {
      x = kMargin;
      y += height + 14;
      height = 0;
    }
    put_panel(drawing, {*band.map, band.heads, words[w], layout, x, y});
    drawing.panels.push_back({.map = index, .head = w, .x = x, .y = y, .cell = kLine});
    x += layout.width + kPanelGap;
    height = std::max(height, layout.height);
  }
  y += height + 8;
  return y + put_legend(drawing, *band.map, band.heads, {kMargin, y}, drawing.width - 2 * kMargin);
}

}  // namespace

Drawing draw_graph(const std::vector<AttentionMap>& maps, const GraphOptions& options) {
  if (maps.empty()) throw InvalidArgument("draw_graph", "maps", "at least one map", "none");
  std::vector<const PickedWord*> words;
  for (const PickedWord& word : options.words) words.push_back(&word);
  if (words.empty()) words.push_back(nullptr);
  std::vector<Band> bands;
  double width = std::min(text_width(options.title, kTitleSize, Weight::bold), kWidest);
  for (const AttentionMap& map : maps) {
    bands.push_back(lay_out_band(map, options, words));
    width = std::max(
        {width, bands.back().width,
         map.heads > 1 ? std::min(kHeadName * static_cast<double>(bands.back().heads.size()), 500.0) : 0});
  }
  Drawing drawing{.width = std::ceil(width + 2 * kMargin)};
  double y = put_title(drawing, options.title);
  if (options.title.empty()) drawing.title = heading_of(maps[0], words[0]);
  for (std::size_t m = 0; m < bands.size(); ++m) y = put_band(drawing, m, bands[m], words, y) + 10;
  drawing.height = std::ceil(y - 10 + kMargin);
  return drawing;
}

}  // namespace fovea::pictures
