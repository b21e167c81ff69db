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
constexpr int kLongestLabel = 264;  // 22 letters

// What one matrix needs. The matrices of a band share it, so that their cells line up.
struct Layout {
  int cell = 0, row_labels = 0, column_labels = 0, width = 0, height = 0;
  int rows = 0, columns = 0;
};

int longest(const std::vector<std::string>& tokens) {
  int length = 0;
  for (const std::string& token : tokens) length = std::max(length, text_length(token, kScale));
  return std::min(length, kLongestLabel);
}

// Cells of 28 pixels carry labels; matrices beyond `target` pixels a side shrink, below a label's height
// without.
Layout lay_out(const AttentionMap& map, int target) {
  Layout layout;
  layout.rows = static_cast<int>(map.rows());
  layout.columns = static_cast<int>(map.columns());
  layout.cell = std::clamp(target / std::max({1, layout.rows, layout.columns}), 1, 44);
  if (layout.cell >= text_height(kScale)) {
    layout.row_labels = longest(map.query_tokens) + kGap;
    layout.column_labels = longest(map.key_tokens) + kGap;
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
    const std::string text = fit_text(map.query_tokens[static_cast<std::size_t>(row)], kLongestLabel, kScale);
    draw_text(picture,
              {.x = x - kGap - text_length(text, kScale),
               .y = y + row * layout.cell + inset,
               .scale = kScale,
               .colour = kInk},
              text);
  }
  for (int column = 0; column < layout.columns; ++column) {
    const std::string text =
        fit_text(map.key_tokens[static_cast<std::size_t>(column)], kLongestLabel, kScale);
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

// The bands of a page: sizes first, because the picture's size must be known before the first pixel.
struct Band {
  const AttentionMap* map = nullptr;
  Layout layout;
  int per_line = 1, lines = 1;
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

int band_height(const Band& band) {
  return kHeading + band.lines * (kHeadName + band.layout.height + kPanelGap) + kScaleHeight;
}

void draw_band(Picture& picture, const Band& band, std::size_t index, int y) {
  const AttentionMap& map = *band.map;
  const Scale scale = scale_of(map.weights);
  draw_text(picture, {.x = kMargin, .y = y, .scale = kScale, .colour = kInk},
            fit_text(map.name, picture.width - 2 * kMargin, kScale));
  y += kHeading;
  for (int head = 0; head < map.heads; ++head) {
    const int x = kMargin + (head % band.per_line) * band_step(band);
    const int top = y + (head / band.per_line) * (kHeadName + band.layout.height + kPanelGap);
    if (map.heads > 1) {
      draw_text(picture, {.x = x + band.layout.row_labels, .y = top, .scale = kScale, .colour = kQuiet},
                "head " + std::to_string(head + 1));
    }
    draw_panel(picture, map, band.layout, scale,
               {.map = index, .head = static_cast<std::size_t>(head), .x = x, .y = top + kHeadName});
  }
  draw_scale(picture, kMargin + band.layout.row_labels,
             y + band.lines * (kHeadName + band.layout.height + kPanelGap) - 4, scale);
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
  std::vector<Band> bands;
  long width = kScaleWidth, height = 2L * kMargin;
  for (const AttentionMap& map : page.maps) {
    check(map, "draw_picture");
    bands.push_back(lay_out_band(map));
    const Band& band = bands.back();
    width = std::max<long>(width, static_cast<long>(band_step(band)) * band.per_line - kPanelGap);
    height += band_height(band);
  }
  const bool titled = !page.title.empty();
  constexpr int kTitleScale = 3, kTitleHeight = 64;
  Picture picture = blank_picture(2L * kMargin + width, height + (titled ? kTitleHeight : 0), kPaper);
  int y = kMargin;
  if (titled) {
    draw_text(picture, {.x = kMargin, .y = y, .scale = kTitleScale, .colour = kInk},
              fit_text(page.title, static_cast<int>(width), kTitleScale));
    y += kTitleHeight;
  }
  for (std::size_t i = 0; i < bands.size(); ++i) {
    draw_band(picture, bands[i], i, y);
    y += band_height(bands[i]);
  }
  return picture;
}

}  // namespace fovea::inspect
