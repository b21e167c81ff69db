#include "fovea/pictures/scene.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "fovea/core/error.h"
#include "pictures/parts.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::Anchor;
using inspect::Drawing;
using inspect::Overflow;
using inspect::Rectangle;
using inspect::Text;
using inspect::Tone;

// Magenta: far from black, white and the colours that things in a picture mostly have.
constexpr Rgb kHeat{214, 0, 143};
constexpr double kHeatOpacity = 0.7;
constexpr double kGap = 14, kCaption = 13, kCaptionGap = 4, kAimedWidth = 120, kLeastCaptionWidth = 60;
constexpr double kLabel = 11, kLabelHeight = 14, kLabelPad = 3;

struct Area {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
  bool meets(const Area& other) const {
    return x < other.right() && other.x < right() && y < other.bottom() && other.y < bottom();
  }
};

void require(bool holds, const std::string& argument, const std::string& expected, const std::string& got) {
  if (!holds) throw InvalidArgument("draw_scenes", argument, expected, got);
}

void check(const Scene& scene, std::size_t index) {
  const std::string name = "scenes[" + std::to_string(index) + "].";
  require(scene.width > 0 && scene.height > 0, name + "width, height", "at least 1",
          std::to_string(scene.width) + " x " + std::to_string(scene.height));
  const std::uint64_t count =
      static_cast<std::uint64_t>(scene.width) * static_cast<std::uint64_t>(scene.height);
  require(scene.pixels.size() == count || scene.pixels.size() == 3 * count, name + "pixels",
          std::to_string(count) + " (grey) or three times as many (colour)",
          std::to_string(scene.pixels.size()));
  require(scene.rows >= 0 && scene.columns >= 0 &&
              scene.weights.size() ==
                  static_cast<std::uint64_t>(scene.rows) * static_cast<std::uint64_t>(scene.columns),
          name + "weights", std::to_string(scene.rows) + " x " + std::to_string(scene.columns),
          std::to_string(scene.weights.size()));
  for (const Box& box : scene.boxes) {
    require(std::isfinite(box.x) && std::isfinite(box.y) && std::isfinite(box.width) &&
                std::isfinite(box.height) && box.width >= 0 && box.height >= 0,
            name + "boxes", "finite places and sizes that are not negative", "'" + box.label + "'");
  }
}

std::uint8_t level(float value) {
  return static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0f, 1.0f)));
}

Rgb colour_at(const Scene& scene, std::size_t pixel) {
  const bool grey =
      scene.pixels.size() == static_cast<std::size_t>(scene.width) * static_cast<std::size_t>(scene.height);
  const float* value = scene.pixels.data() + (grey ? pixel : 3 * pixel);
  const float red = value[0], green = grey ? red : value[1], blue = grey ? red : value[2];
  if (std::isnan(red) || std::isnan(green) || std::isnan(blue)) return inspect::not_finite_colour;
  return {level(red), level(green), level(blue)};
}

// Pixels of a PNG are half a unit.
double to_pixel(double units) {
  return std::round(2 * units) / 2;
}

void put_pixels(Drawing& drawing, const Scene& scene, const Area& area) {
  drawing.items.push_back(Rectangle{.x = area.x - 0.5,
                                    .y = area.y - 0.5,
                                    .width = area.width + 1,
                                    .height = area.height + 1,
                                    .fill = {Tone::line}});
  inspect::Image image{.x = area.x,
                       .y = area.y,
                       .width = area.width,
                       .height = area.height,
                       .rows = scene.height,
                       .columns = scene.width,
                       .pixels = {}};
  const std::size_t count = static_cast<std::size_t>(scene.width) * static_cast<std::size_t>(scene.height);
  image.pixels.reserve(count);
  for (std::size_t i = 0; i < count; ++i) image.pixels.push_back(colour_at(scene, i));
  drawing.items.push_back(std::move(image));
}

// The parts need not be whole pixels of the image, but their edges are whole pixels of the PNG: parts that
// overlapped in a pixel, or shared it, would show as lines.
void put_weights(Drawing& drawing, const Scene& scene, const Area& area) {
  const Scale scale = scale_of(scene.weights);
  const auto edge = [](double from, double length, int part, int parts) {
    return to_pixel(from + length * part / parts);
  };
  std::size_t i = 0;
  for (int row = 0; row < scene.rows; ++row) {
    for (int column = 0; column < scene.columns; ++column) {
      const float weight = scene.weights[i++];
      const bool finite = std::isfinite(weight);
      if (finite && !(weight > 0)) continue;
      const double x = edge(area.x, area.width, column, scene.columns),
                   y = edge(area.y, area.height, row, scene.rows);
      drawing.items.push_back(
          Rectangle{.x = x,
                    .y = y,
                    .width = edge(area.x, area.width, column + 1, scene.columns) - x,
                    .height = edge(area.y, area.height, row + 1, scene.rows) - y,
                    .fill = {finite ? kHeat : inspect::not_finite_colour,
                             kHeatOpacity * (finite ? position_of(weight, scale) : 1.0)}});
    }
  }
}

// `box` in the drawing, its edges cut off at the image's.
Area area_of(const Box& box, const Area& image, double zoom) {
  const auto at = [&](double place, double length) {
    return to_pixel(std::clamp(place * zoom, 0.0, length));
  };
  const double left = at(box.x, image.width), right = at(box.x + box.width, image.width);
  const double top = at(box.y, image.height), bottom = at(box.y + box.height, image.height);
  return {image.x + left, image.y + top, right - left, bottom - top};
}

void put_outline(Drawing& drawing, const Area& box, double zoom, Rgb colour) {
  const double line = std::min({zoom >= 1.5 ? 1.5 : 0.5, box.width, box.height});
  const auto fill = [&](double x, double y, double width, double height) {
    drawing.items.push_back(Rectangle{.x = x, .y = y, .width = width, .height = height, .fill = {colour}});
  };
  fill(box.x, box.y, box.width, line);
  fill(box.x, box.bottom() - line, box.width, line);
  fill(box.x, box.y, line, box.height);
  fill(box.right() - line, box.y, line, box.height);
}

// The first place around the box, then inside of it, that is within the image and on no earlier label.
Area place_label(const Area& box, const Area& image, double width, const std::vector<Area>& taken) {
  const double height = kLabelHeight;
  const double left = box.x, right = box.right() - width, above = box.y - height, below = box.bottom();
  const Area around[] = {{left, above, width, height},          {right, above, width, height},
                         {left, below, width, height},          {right, below, width, height},
                         {box.right(), box.y, width, height},   {box.x - width, box.y, width, height},
                         {left, box.y, width, height},          {right, box.y, width, height},
                         {left, below - height, width, height}, {right, below - height, width, height}};
  for (const Area& place : around) {
    const bool inside = place.x >= image.x && place.right() <= image.right() && place.y >= image.y &&
                        place.bottom() <= image.bottom();
    const auto meets = [&](const Area& other) { return other.meets(place); };
    if (inside && std::none_of(taken.begin(), taken.end(), meets)) return place;
  }
  return {std::clamp(left, image.x, std::max(image.x, image.right() - width)),
          std::clamp(above, image.y, std::max(image.y, image.bottom() - height)), width, height};
}

void put_boxes(Drawing& drawing, const Scene& scene, const Area& image, double zoom) {
  for (const Box& box : scene.boxes) put_outline(drawing, area_of(box, image, zoom), zoom, box.colour);
  std::vector<Area> taken;
  for (const Box& box : scene.boxes) {
    if (box.label.empty()) continue;
    const double room = image.width - 2 * kLabelPad;
    const double width = std::ceil(std::min(text_width(box.label, kLabel), room)) + 2 * kLabelPad;
    const Area place = place_label(area_of(box, image, zoom), image, std::min(width, image.width), taken);
    taken.push_back(place);
    drawing.items.push_back(Rectangle{
        .x = place.x, .y = place.y, .width = place.width, .height = place.height, .fill = {box.colour}});
    const double light = 0.299 * box.colour.red + 0.587 * box.colour.green + 0.114 * box.colour.blue;
    drawing.items.push_back(Text{.x = place.x + place.width / 2,
                                 .y = base_line(place.y + place.height / 2, kLabel),
                                 .text = box.label,
                                 .size = kLabel,
                                 .paint = {light > 150 ? Rgb{28, 30, 38} : Rgb{255, 255, 255}},
                                 .anchor = Anchor::middle,
                                 .limit = room});
  }
}

struct Placed {
  Area image;
  double zoom = 1, caption_width = 0;
  int caption_lines = 0;
  double height() const {
    return image.height + (caption_lines > 0 ? kCaptionGap : 0) + caption_lines * line_height(kCaption);
  }
};

Placed lay_out(const Scene& scene, const SceneOptions& options) {
  Placed placed;
  placed.zoom = options.zoom > 0 ? options.zoom : std::max(0.5, to_pixel(kAimedWidth / scene.width));
  placed.image.width = scene.width * placed.zoom;
  placed.image.height = scene.height * placed.zoom;
  placed.caption_width = std::max(placed.image.width, kLeastCaptionWidth);
  placed.caption_lines = line_count(scene.caption, kCaption, placed.caption_width);
  return placed;
}

void put_scene(Drawing& drawing, const Scene& scene, const Placed& placed) {
  put_pixels(drawing, scene, placed.image);
  put_weights(drawing, scene, placed.image);
  put_boxes(drawing, scene, placed.image, placed.zoom);
  if (scene.caption.empty()) return;
  drawing.items.push_back(Text{.x = placed.image.x,
                               .y = placed.image.bottom() + kCaptionGap + kCaption,
                               .text = scene.caption,
                               .size = kCaption,
                               .paint = {Tone::ink},
                               .limit = placed.caption_width,
                               .overflow = Overflow::wrap});
}

}  // namespace

Drawing draw_scenes(const std::vector<Scene>& scenes, const SceneOptions& options) {
  require(options.columns >= 1, "options.columns", "at least 1", std::to_string(options.columns));
  require(options.zoom >= 0 && options.zoom <= 1000, "options.zoom", "0 to 1000",
          std::to_string(options.zoom));
  std::vector<Placed> all;
  double column_width = kLeastCaptionWidth;
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    check(scenes[i], i);
    all.push_back(lay_out(scenes[i], options));
    column_width = std::max(column_width, std::ceil(all.back().image.width));
  }
  const std::size_t columns =
      std::min(static_cast<std::size_t>(options.columns), std::max<std::size_t>(1, all.size()));
  const double lines = static_cast<double>(columns) * (column_width + kGap) - kGap;
  const double title =
      options.title.empty() ? 0 : text_width(options.title, kTitleSize, inspect::Weight::bold);
  // A title that is somewhat wider than the scenes widens the picture; one that is much wider is cut.
  Drawing drawing{.width = std::ceil(2 * kMargin + std::max(lines, std::min(title, 2 * lines)))};
  double y = put_title(drawing, options.title);
  for (std::size_t first = 0; first < all.size(); first += columns) {
    double height = 0;
    for (std::size_t i = first; i < std::min(all.size(), first + columns); ++i) {
      all[i].image.x = kMargin + static_cast<double>(i - first) * (column_width + kGap);
      all[i].image.y = y;
      height = std::max(height, all[i].height());
      drawing.panels.push_back(
          {.map = i, .head = 0, .x = all[i].image.x, .y = all[i].image.y, .cell = all[i].zoom});
      put_scene(drawing, scenes[i], all[i]);
    }
    y = std::ceil(y + height + kGap);
  }
  drawing.height = y - (all.empty() ? 0 : kGap) + kMargin;
  return drawing;
}

}  // namespace fovea::pictures
