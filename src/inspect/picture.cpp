#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "fovea/inspect/png.h"
#include "inspect/canvas.h"

namespace fovea::inspect {
namespace {

constexpr Rgb kPaper{255, 255, 255}, kInk{28, 30, 38}, kQuiet{112, 117, 130}, kFrame{206, 210, 218};
constexpr int kScale =
    2;  // font pixels are drawn 2 x 2: a picture is looked at on a dense screen or shrunk on a page
constexpr int kMargin = 32, kGap = 10;
constexpr int kLongestRowLabel = 528, kLongestColumnLabel = 264;  // 44 letters, a line of a text; 22

// What one matrix needs. The matrices of a band share it, so that their cells line up.
struct Layout {
  int cell = 0, row_labels = 0, column_labels = 0, width = 0, height = 0;
  int rows = 0, columns = 0;
};

int longest(const std::vector<std::string>& tokens, int limit) {
  int length = 0;
  for (const std::string& token : tokens) length = std::max(length, text_length(token, kScale));
  return std::min(length, limit);
}

// Cells of 28 pixels carry labels; matrices beyond `target` pixels a side shrink, below a label's height
// without.
Layout lay_out(const AttentionMap& map, int target) {
  Layout layout;
  layout.rows = static_cast<int>(map.rows());
  layout.columns = static_cast<int>(map.columns());
  layout.cell = std::clamp(target / std::max({1, layout.rows, layout.columns}), 1, 44);
  if (layout.cell >= text_height(kScale)) {
    layout.row_labels = longest(map.query_tokens, kLongestRowLabel) + kGap;
    layout.column_labels = longest(map.key_tokens, kLongestColumnLabel) + kGap;
  }
  layout.width = layout.row_labels + layout.cell * layout.columns;
  layout.height = layout.column_labels + layout.cell * layout.rows;
  return layout;
}

struct Scale {
  double largest = 0;
  bool any_not_finite = false;
};

Scale scale_of(const std::vector<float>& weights) {
  Scale scale;
  for (const float weight : weights) {
    if (std::isfinite(weight)) {
      scale.largest = std::max<double>(scale.largest, weight);
    } else {
      scale.any_not_finite = true;
    }
  }
  return scale;
}

Rgb cell_colour(float weight, const Scale& scale) {
  if (!std::isfinite(weight)) return not_finite_colour;
  return colour_of(scale.largest > 0 ? weight / scale.largest : 0, Ground::light);
}

void draw_labels(Picture& picture, const AttentionMap& map, const Layout& layout, int x, int y) {
  const int inset = (layout.cell - text_height(kScale)) / 2;
  for (int row = 0; row < layout.rows; ++row) {
    const std::string text =
        fit_text(map.query_tokens[static_cast<std::size_t>(row)], kLongestRowLabel, kScale);
    draw_text(picture,
              {.x = x - kGap - text_length(text, kScale),
               .y = y + row * layout.cell + inset,
               .scale = kScale,
               .colour = kInk},
              text);
  }
  for (int column = 0; column < layout.columns; ++column) {
    const std::string text =
        fit_text(map.key_tokens[static_cast<std::size_t>(column)], kLongestColumnLabel, kScale);
    draw_text(picture,
              {.x = x + column * layout.cell + inset,
               .y = y - kGap - text_length(text, kScale),
               .scale = kScale,
               .direction = Direction::up,
               .colour = kInk},
              text);
  }
}

// The matrix of one head with its labels; (x, y) is the upper left corner of the whole.
void draw_panel(Picture& picture, const AttentionMap& map, const Layout& layout, const Scale& scale,
                Panel panel) {
  panel.x += layout.row_labels;
  panel.y += layout.column_labels;
  panel.cell = layout.cell;
  const int width = layout.columns * layout.cell, height = layout.rows * layout.cell;
  if (layout.row_labels > 0) draw_labels(picture, map, layout, panel.x, panel.y);
  fill(picture, panel.x - 1, panel.y - 1, width + 2, height + 2, kFrame);
  const float* weights = map.weights.data() + panel.head * map.rows() * map.columns();
  const int line = layout.cell >= 12 ? 1 : 0;  // a hair line between cells, where there is room for one
  for (int row = 0; row < layout.rows; ++row) {
    for (int column = 0; column < layout.columns; ++column) {
      const float weight =
          weights[static_cast<std::size_t>(row) * map.columns() + static_cast<std::size_t>(column)];
      fill(picture, panel.x + column * layout.cell, panel.y + row * layout.cell, layout.cell - line,
           layout.cell - line, cell_colour(weight, scale));
    }
  }
  picture.panels.push_back(panel);
}

void draw_scale(Picture& picture, int x, int y, const Scale& scale) {
  constexpr int kLength = 256, kThick = 14;
  const int text_y = y + (kThick - text_height(kScale)) / 2;
  char number[32];
  std::snprintf(number, sizeof number, "%.3g", scale.largest);
  draw_text(picture, {.x = x, .y = text_y, .scale = kScale, .colour = kQuiet}, "0");
  x += text_length("0 ", kScale);
  fill(picture, x - 1, y - 1, kLength + 2, kThick + 2, kFrame);
  for (int i = 0; i < kLength; ++i) fill(picture, x + i, y, 1, kThick, colour_of(i / 255.0, Ground::light));
  const std::string tail = std::string(number) + (scale.any_not_finite ? "   orange: not finite" : "");
  draw_text(picture, {.x = x + kLength + 12, .y = text_y, .scale = kScale, .colour = kQuiet}, tail);
}

constexpr int kScaleHeight = 56, kScaleWidth = 256 + 520;

// The bands of a page: sizes first, because the picture's size must be known before the first pixel. Maps of
// one head stand beside each other where there is room.
struct Band {
  const AttentionMap* map = nullptr;
  Layout layout;
  int per_line = 1, lines = 1;
  int x = 0, y = 0;  // within the page's bands
};

constexpr int kPanelGap = 40, kHeading = 40, kHeadName = 32, kWidest = 2600;

Band lay_out_band(const AttentionMap& map) {
  Band band{.map = &map, .layout = lay_out(map, map.heads == 1 ? 1600 : 520)};
  const int step = std::max(band.layout.width, text_length("head 00", kScale)) + kPanelGap;
  band.per_line = std::clamp(kWidest / step, 1, map.heads);
  band.lines = (map.heads + band.per_line - 1) / band.per_line;
  return band;
}

int band_step(const Band& band) {
  return std::max(band.layout.width, text_length("head 00", kScale)) + kPanelGap;
}

int band_width(const Band& band) {
  constexpr int kWithScale = 256 + 120;
  return std::max(band_step(band) * band.per_line - kPanelGap, band.layout.row_labels + kWithScale);
}

int band_height(const Band& band) {
  return kHeading + band.lines * (kHeadName + band.layout.height + kPanelGap) + kScaleHeight;
}

void draw_band(Picture& picture, const Band& band, std::size_t index, int left, int y) {
  const AttentionMap& map = *band.map;
  const Scale scale = scale_of(map.weights);
  draw_text(picture, {.x = left, .y = y, .scale = kScale, .colour = kInk},
            fit_text(map.name, std::min(kWidest, picture.width - kMargin - left), kScale));
  y += kHeading;
  for (int head = 0; head < map.heads; ++head) {
    const int x = left + (head % band.per_line) * band_step(band);
    const int top = y + (head / band.per_line) * (kHeadName + band.layout.height + kPanelGap);
    if (map.heads > 1) {
      draw_text(picture, {.x = x + band.layout.row_labels, .y = top, .scale = kScale, .colour = kQuiet},
                "head " + std::to_string(head + 1));
    }
    draw_panel(picture, map, band.layout, scale,
               {.map = index, .head = static_cast<std::size_t>(head), .x = x, .y = top + kHeadName});
  }
  draw_scale(picture, left + band.layout.row_labels,
             y + band.lines * (kHeadName + band.layout.height + kPanelGap) - 4, scale);
}

struct Bands {
  std::vector<Band> all;
  int width = kScaleWidth, height = 0;
};

Bands lay_out_bands(const std::vector<AttentionMap>& maps) {
  Bands bands;
  int line = 0, free = 0;  // where the current line begins, and its first free column
  bool shared = false;     // whether it holds maps of one head only
  for (const AttentionMap& map : maps) {
    check(map, "draw_picture");
    Band band = lay_out_band(map);
    const int heading = text_length(fit_text(map.name, kWidest, kScale), kScale);
    const int width = std::max(band_width(band), map.heads == 1 ? heading : 0);
    if (!shared || map.heads > 1 || free + width > kWidest) {
      line = bands.height;
      free = 0;
    }
    shared = map.heads == 1;
    band.x = free;
    band.y = line;
    free += width + kPanelGap;
    bands.width = std::max(bands.width, free - kPanelGap);
    bands.height = std::max(bands.height, line + band_height(band));
    bands.all.push_back(band);
  }
  return bands;
}

}  // namespace

Picture draw_picture(const AlignmentMatrix& alignment) {
  check(alignment, "draw_picture");
  const AttentionMap map = as_map(alignment);
  const Layout layout = lay_out(map, 1600);
  const Scale scale = scale_of(map.weights);
  const int width = std::max(layout.width, layout.row_labels + kScaleWidth / (scale.any_not_finite ? 1 : 2));
  Picture picture =
      blank_picture(2L * kMargin + width, 2L * kMargin + layout.height + kGap + kScaleHeight, kPaper);
  draw_panel(picture, map, layout, scale, {.x = kMargin, .y = kMargin});
  draw_scale(picture, kMargin + layout.row_labels, kMargin + layout.height + 28, scale);
  return picture;
}

Picture draw_picture(const InspectPage& page) {
  const Bands bands = lay_out_bands(page.maps);
  const bool titled = !page.title.empty();
  constexpr int kTitleScale = 3, kTitleHeight = 64;
  Picture picture = blank_picture(2L * kMargin + bands.width,
                                  2L * kMargin + bands.height + (titled ? kTitleHeight : 0), kPaper);
  int y = kMargin;
  if (titled) {
    draw_text(picture, {.x = kMargin, .y = y, .scale = kTitleScale, .colour = kInk},
              fit_text(page.title, bands.width, kTitleScale));
    y += kTitleHeight;
  }
  for (std::size_t i = 0; i < bands.all.size(); ++i)
    draw_band(picture, bands.all[i], i, kMargin + bands.all[i].x, y + bands.all[i].y);
  return picture;
}

}  // namespace fovea::inspect
