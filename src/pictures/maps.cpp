#include "fovea/pictures/maps.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "pictures/parts.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::AlignmentMatrix;
using inspect::Anchor;
using inspect::AttentionMap;
using inspect::Direction;
using inspect::Drawing;
using inspect::InspectPage;
using inspect::Panel;
using inspect::Rectangle;
using inspect::Text;
using inspect::Tone;
using inspect::Weight;

constexpr double kLabel = 13, kGap = 6;
constexpr double kLongestRowLabel = 264, kLongestColumnLabel = 132;  // a line of a text; some twenty letters
constexpr double kScaleHeight = 28, kScaleLength = 128, kScaleWidth = kScaleLength + 220;
constexpr double kPanelGap = 20, kHeading = 22, kHeadName = 18, kWidest = 1300, kCell = 22,
                 kLeastLabelled = 11;

// The measures of one matrix with its labels. All matrices of a band share them, so that their cells line up.
struct Layout {
  double cell = 0, label = kLabel, row_labels = 0, column_labels = 0, width = 0, height = 0;
  int rows = 0, columns = 0;
};

// If a side of the matrix would be larger than `target`, its cells shrink. They shrink in steps of half a
// unit, which are whole pixels of a PNG. Cells smaller than kLeastLabelled have no labels.
Layout lay_out(const AttentionMap& map, double target) {
  Layout layout;
  layout.rows = static_cast<int>(map.rows());
  layout.columns = static_cast<int>(map.columns());
  const double room = target / std::max({1, layout.rows, layout.columns});
  layout.cell = std::clamp(std::floor(2 * room) / 2, 0.5, kCell);
  if (layout.cell >= kLeastLabelled) {
    layout.label = std::min(kLabel, layout.cell - 1);
    layout.row_labels = longest(map.query_tokens, layout.label, kLongestRowLabel) + kGap;
    layout.column_labels = longest(map.key_tokens, layout.label, kLongestColumnLabel) + kGap;
  }
  layout.width = layout.row_labels + layout.cell * layout.columns;
  layout.height = layout.column_labels + layout.cell * layout.rows;
  return layout;
}

void put_labels(Drawing& drawing, const AttentionMap& map, const Layout& layout, double x, double y) {
  for (int row = 0; row < layout.rows; ++row) {
    drawing.items.push_back(Text{.x = x - kGap,
                                 .y = base_line(y + (row + 0.5) * layout.cell, layout.label),
                                 .text = map.query_tokens[static_cast<std::size_t>(row)],
                                 .size = layout.label,
                                 .paint = {Tone::ink},
                                 .anchor = Anchor::end,
                                 .limit = kLongestRowLabel});
  }
  for (int column = 0; column < layout.columns; ++column) {
    drawing.items.push_back(Text{.x = base_line(x + (column + 0.5) * layout.cell, layout.label),
                                 .y = y - kGap,
                                 .text = map.key_tokens[static_cast<std::size_t>(column)],
                                 .size = layout.label,
                                 .paint = {Tone::ink},
                                 .direction = Direction::up,
                                 .limit = kLongestColumnLabel});
  }
}

// Draws the matrix of one head and its labels; (panel.x, panel.y) is the upper left corner of both together.
void put_panel(Drawing& drawing, const AttentionMap& map, const Layout& layout, const Scale& scale,
               Panel panel) {
  panel.x += layout.row_labels;
  panel.y += layout.column_labels;
  panel.cell = layout.cell;
  if (layout.row_labels > 0) put_labels(drawing, map, layout, panel.x, panel.y);
  drawing.items.push_back(Rectangle{.x = panel.x - 0.5,
                                    .y = panel.y - 0.5,
                                    .width = layout.columns * layout.cell + 1,
                                    .height = layout.rows * layout.cell + 1,
                                    .fill = {Tone::line}});
  inspect::Grid grid{
      .x = panel.x,
      .y = panel.y,
      .cell = layout.cell,
      .gap = layout.cell >= 6 ? 0.5 : 0,  // a hair line between cells, where there is room for one
      .rows = layout.rows,
      .columns = layout.columns,
      .positions = {}};
  const float* weights = map.weights.data() + panel.head * map.rows() * map.columns();
  for (std::size_t i = 0; i < map.rows() * map.columns(); ++i)
    grid.positions.push_back(static_cast<float>(position_of(weights[i], scale)));
  drawing.items.push_back(std::move(grid));
  drawing.panels.push_back(panel);
}

void put_scale(Drawing& drawing, double x, double y, const Scale& scale) {
  constexpr double kThick = 8, kSize = 12;
  constexpr int kSteps = 64;
  char number[32];
  std::snprintf(number, sizeof number, "%.3g", scale.largest);
  const double text_y = base_line(y + kThick / 2, kSize);
  drawing.items.push_back(Text{.x = x, .y = text_y, .text = "0", .size = kSize, .paint = {Tone::quiet}});
  x += 14;
  drawing.items.push_back(Rectangle{
      .x = x - 0.5, .y = y - 0.5, .width = kScaleLength + 1, .height = kThick + 1, .fill = {Tone::line}});
  for (int i = 0; i < kSteps; ++i) {
    drawing.items.push_back(Rectangle{.x = x + i * kScaleLength / kSteps,
                                      .y = y,
                                      .width = kScaleLength / kSteps,
                                      .height = kThick,
                                      .fill = {inspect::OnRamp{i / (kSteps - 1.0)}}});
  }
  drawing.items.push_back(
      Text{.x = x + kScaleLength + 6,
           .y = text_y,
           .text = std::string(number) + (scale.any_not_finite ? "   orange: not finite" : ""),
           .size = kSize,
           .paint = {Tone::quiet}});
}

// The part of a page that shows one map: all its heads, in lines. All bands are laid out before anything is
// drawn, because a drawing's size must be known before its first item. Bands of maps that have a single head
// stand side by side where there is room.
struct Band {
  const AttentionMap* map = nullptr;
  Layout layout;
  int per_line = 1, lines = 1;
  double x = 0, y = 0;  // within the page's bands
};

double band_step(const Layout& layout) {
  return std::max(layout.width, 60.0) + kPanelGap;
}

Band lay_out_band(const AttentionMap& map) {
  Band band{.map = &map, .layout = lay_out(map, map.heads == 1 ? 800 : 260)};
  band.per_line = std::clamp(static_cast<int>(kWidest / band_step(band.layout)), 1, map.heads);
  band.lines = (map.heads + band.per_line - 1) / band.per_line;
  return band;
}

double band_width(const Band& band) {
  return std::max(band_step(band.layout) * band.per_line - kPanelGap,
                  band.layout.row_labels + kScaleLength + 64);
}

double head_height(const Band& band) {
  return (band.map->heads > 1 ? kHeadName : 4) + band.layout.height + kPanelGap;
}

double band_height(const Band& band) {
  return kHeading + band.lines * head_height(band) + kScaleHeight;
}

void put_band(Drawing& drawing, const Band& band, std::size_t index, double left, double y) {
  const AttentionMap& map = *band.map;
  const Scale scale = scale_of(map.weights);
  drawing.items.push_back(Text{.x = left,
                               .y = y + 14,
                               .text = map.name,
                               .size = 14,
                               .paint = {Tone::ink},
                               .weight = Weight::bold,
                               .limit = std::min(kWidest, drawing.width - kMargin - left)});
  y += kHeading;
  for (int head = 0; head < map.heads; ++head) {
    const double x = left + (head % band.per_line) * band_step(band.layout);
    const double top = y + (head / band.per_line) * head_height(band);
    if (map.heads > 1) {
      drawing.items.push_back(Text{.x = x + band.layout.row_labels,
                                   .y = top + 12,
                                   .text = "head " + std::to_string(head + 1),
                                   .size = 12,
                                   .paint = {Tone::quiet}});
    }
    put_panel(drawing, map, band.layout, scale,
              {.map = index,
               .head = static_cast<std::size_t>(head),
               .x = x,
               .y = top + (map.heads > 1 ? kHeadName : 4)});
  }
  put_scale(drawing, left + band.layout.row_labels, y + band.lines * head_height(band) - 6, scale);
}

struct Bands {
  std::vector<Band> all;
  double width = 0, height = 0;
};

Bands lay_out_bands(const std::vector<AttentionMap>& maps) {
  Bands bands;
  double line = 0, free = 0;  // y of the current line of bands, and its first free x
  bool shared = false;        // whether the current line holds only maps that have a single head
  for (const AttentionMap& map : maps) {
    check(map, "draw_picture");
    Band band = lay_out_band(map);
    const double heading = std::min(text_width(map.name, 14, Weight::bold), kWidest);
    const double width = std::ceil(std::max(band_width(band), map.heads == 1 ? heading : 0));
    if (!shared || map.heads > 1 || free + width > kWidest) {
      line = bands.height;
      free = 0;
    }
    shared = map.heads == 1;
    band.x = free;
    band.y = line;
    free += width + kPanelGap;
    bands.width = std::max({bands.width, free - kPanelGap, heading});
    bands.height = std::max(bands.height, line + band_height(band));
    bands.all.push_back(band);
  }
  return bands;
}

}  // namespace

Drawing draw_picture(const AlignmentMatrix& alignment) {
  check(alignment, "draw_picture");
  const AttentionMap map = as_map(alignment);
  const Layout layout = lay_out(map, 800);
  const Scale scale = scale_of(map.weights);
  const double width = std::max(layout.width, layout.row_labels + (scale.any_not_finite ? kScaleWidth : 200));
  Drawing drawing{.width = std::ceil(2 * kMargin + width),
                  .height = std::ceil(2 * kMargin + layout.height + kGap + kScaleHeight),
                  .title = "alignment"};
  put_panel(drawing, map, layout, scale, {.x = kMargin, .y = kMargin});
  put_scale(drawing, kMargin + layout.row_labels, kMargin + layout.height + 14, scale);
  return drawing;
}

Drawing draw_picture(const InspectPage& page) {
  const Bands bands = lay_out_bands(page.maps);
  const bool titled = !page.title.empty();
  const double title = std::min(text_width(page.title, kTitleSize, Weight::bold), kWidest);
  Drawing drawing{.width = std::ceil(2 * kMargin + std::max({bands.width, titled ? title : 0, kScaleWidth})),
                  .height = std::ceil(2 * kMargin + bands.height + (titled ? kTitleHeight : 0))};
  const double y = put_title(drawing, page.title);
  for (std::size_t i = 0; i < bands.all.size(); ++i)
    put_band(drawing, bands.all[i], i, kMargin + bands.all[i].x, y + bands.all[i].y);
  return drawing;
}

}  // namespace fovea::pictures
