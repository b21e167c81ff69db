#include "fovea/inspect/scene.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "fovea/core/error.h"
#include "inspect/canvas.h"

namespace fovea::inspect {
namespace {

constexpr Rgb kPaper{255, 255, 255}, kInk{28, 30, 38}, kFrame{206, 210, 218};
// Magenta: far from black, white and the colours that things in a picture mostly have.
constexpr Rgb kHeat{214, 0, 143};
constexpr double kHeatOpacity = 0.7;
constexpr int kTitleScale = 3, kScale = 2, kTitleHeight = 56;
constexpr int kMargin = 24, kGap = 24, kCaptionGap = 6, kAimedWidth = 240, kLeastCaptionWidth = 120;

struct Area {
  int x = 0, y = 0, width = 0, height = 0;
  int right() const { return x + width; }
  int bottom() const { return y + height; }
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

// Words in lines of at most `width` pixels; a word that is longer than a line is cut.
std::vector<std::string> wrap(const std::string& text, int width) {
  std::vector<std::string> lines;
  std::istringstream paragraphs(text);
  for (std::string paragraph; std::getline(paragraphs, paragraph);) {
    std::string line;
    std::istringstream words(paragraph);
    for (std::string word; words >> word;) {
      const std::string longer = line.empty() ? word : line + " " + word;
      if (line.empty() || text_length(longer, kScale) <= width) {
        line = longer;
      } else {
        lines.push_back(fit_text(line, width, kScale));
        line = word;
      }
    }
    lines.push_back(fit_text(line, width, kScale));
  }
  return lines;
}

std::uint8_t level(float value) {
  return static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0f, 1.0f)));
}

Rgb colour_at(const Scene& scene, std::size_t pixel) {
  const bool grey =
      scene.pixels.size() == static_cast<std::size_t>(scene.width) * static_cast<std::size_t>(scene.height);
  const float* value = scene.pixels.data() + (grey ? pixel : 3 * pixel);
  const float red = value[0], green = grey ? red : value[1], blue = grey ? red : value[2];
  if (std::isnan(red) || std::isnan(green) || std::isnan(blue)) return not_finite_colour;
  return {level(red), level(green), level(blue)};
}

Rgb blend(Rgb below, Rgb above, double opacity) {
  const auto mix = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(
        std::lround(std::lerp(static_cast<double>(from), static_cast<double>(to), opacity)));
  };
  return {mix(below.red, above.red), mix(below.green, above.green), mix(below.blue, above.blue)};
}

void draw_pixels(Picture& picture, const Scene& scene, const Area& area, int zoom) {
  fill(picture, area.x - 1, area.y - 1, area.width + 2, area.height + 2, kFrame);
  for (int row = 0; row < scene.height; ++row) {
    for (int column = 0; column < scene.width; ++column) {
      const std::size_t pixel = static_cast<std::size_t>(row) * static_cast<std::size_t>(scene.width) +
                                static_cast<std::size_t>(column);
      fill(picture, area.x + column * zoom, area.y + row * zoom, zoom, zoom, colour_at(scene, pixel));
    }
  }
}

void draw_weights(Picture& picture, const Scene& scene, const Area& area) {
  float largest = 0;
  for (const float weight : scene.weights) {
    if (std::isfinite(weight)) largest = std::max(largest, weight);
  }
  // Screen pixels, not image pixels: the parts need not be whole pixels of the image.
  for (int y = 0; y < area.height && !scene.weights.empty(); ++y) {
    for (int x = 0; x < area.width; ++x) {
      const auto row = static_cast<std::size_t>(std::int64_t{y} * scene.rows / area.height);
      const auto column = static_cast<std::size_t>(std::int64_t{x} * scene.columns / area.width);
      const float weight = scene.weights[row * static_cast<std::size_t>(scene.columns) + column];
      const bool finite = std::isfinite(weight);
      if (finite && !(weight > 0)) continue;
      const double share = finite ? weight / largest : 1.0;
      std::uint8_t* at = picture.rgb.data() +
                         3 * (static_cast<std::size_t>(area.y + y) * static_cast<std::size_t>(picture.width) +
                              static_cast<std::size_t>(area.x + x));
      const Rgb colour =
          blend({at[0], at[1], at[2]}, finite ? kHeat : not_finite_colour, kHeatOpacity * share);
      at[0] = colour.red, at[1] = colour.green, at[2] = colour.blue;
    }
  }
}

// `box` on the screen, its edges cut off at the image's.
Area area_of(const Box& box, const Area& image, int zoom) {
  const auto at = [&](double place, int length) {
    return static_cast<int>(std::lround(std::clamp(place * zoom, 0.0, static_cast<double>(length))));
  };
  const int left = at(box.x, image.width), right = at(box.x + box.width, image.width);
  const int top = at(box.y, image.height), bottom = at(box.y + box.height, image.height);
  return {image.x + left, image.y + top, right - left, bottom - top};
}

void outline(Picture& picture, const Area& box, int zoom, Rgb colour) {
  const int line = std::min({zoom >= 3 ? 3 : 1, box.width, box.height});
  fill(picture, box.x, box.y, box.width, line, colour);
  fill(picture, box.x, box.bottom() - line, box.width, line, colour);
  fill(picture, box.x, box.y, line, box.height, colour);
  fill(picture, box.right() - line, box.y, line, box.height, colour);
}

// The first place around the box, then inside of it, that is within the image and on no earlier label.
Area place_label(const Area& box, const Area& image, int width, const std::vector<Area>& taken) {
  const int height = text_height(kScale);
  const int left = box.x, right = box.right() - width, above = box.y - height, below = box.bottom();
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

void draw_boxes(Picture& picture, const Scene& scene, const Area& image, int zoom) {
  for (const Box& box : scene.boxes) outline(picture, area_of(box, image, zoom), zoom, box.colour);
  std::vector<Area> taken;
  for (const Box& box : scene.boxes) {
    if (box.label.empty()) continue;
    const std::string text = fit_text(box.label, image.width - 2 * kScale, kScale);
    const int width = text_length(text, kScale) + 2 * kScale;
    const Area place = place_label(area_of(box, image, zoom), image, width, taken);
    taken.push_back(place);
    fill(picture, place.x, place.y, place.width, place.height, box.colour);
    const double light = 0.299 * box.colour.red + 0.587 * box.colour.green + 0.114 * box.colour.blue;
    draw_text(
        picture,
        {.x = place.x + 2 * kScale - 1, .y = place.y, .scale = kScale, .colour = light > 150 ? kInk : kPaper},
        text);
  }
}

struct Placed {
  Area image;
  int zoom = 1;
  std::vector<std::string> caption;
  int height() const {
    return image.height + (caption.empty() ? 0 : kCaptionGap) +
           static_cast<int>(caption.size()) * text_height(kScale);
  }
};

Placed lay_out(const Scene& scene, const SceneOptions& options) {
  Placed placed;
  placed.zoom = options.zoom > 0
                    ? options.zoom
                    : std::max(1, static_cast<int>(std::lround(double{kAimedWidth} / scene.width)));
  constexpr std::int64_t kLongest = 1 << 28;
  const std::int64_t width = std::int64_t{scene.width} * placed.zoom,
                     height = std::int64_t{scene.height} * placed.zoom;
  require(width <= kLongest && height <= kLongest, "options.zoom", "a picture of at most 2^28 pixels",
          std::to_string(placed.zoom));
  placed.image.width = static_cast<int>(width);
  placed.image.height = static_cast<int>(height);
  placed.caption = wrap(scene.caption, std::max(placed.image.width, kLeastCaptionWidth));
  return placed;
}

}  // namespace

Picture draw_scenes(const std::vector<Scene>& scenes, const SceneOptions& options) {
  require(options.columns >= 1, "options.columns", "at least 1", std::to_string(options.columns));
  require(options.zoom >= 0, "options.zoom", "at least 0", std::to_string(options.zoom));
  std::vector<Placed> all;
  int column_width = kLeastCaptionWidth;
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    check(scenes[i], i);
    all.push_back(lay_out(scenes[i], options));
    column_width = std::max(column_width, all.back().image.width);
  }
  const std::size_t columns =
      std::min(static_cast<std::size_t>(options.columns), std::max<std::size_t>(1, all.size()));
  long y = kMargin + (options.title.empty() ? 0 : kTitleHeight);
  std::vector<long> tops;
  for (std::size_t first = 0; first < all.size(); first += columns) {
    int height = 0;
    for (std::size_t i = first; i < std::min(all.size(), first + columns); ++i) {
      tops.push_back(y);
      height = std::max(height, all[i].height());
    }
    y += height + kGap;
  }
  const long width = static_cast<long>(columns) * (column_width + kGap) - kGap;
  Picture picture = blank_picture(2L * kMargin + width, y - (all.empty() ? 0 : kGap) + kMargin, kPaper);
  if (!options.title.empty()) {
    draw_text(picture, {.x = kMargin, .y = kMargin, .scale = kTitleScale, .colour = kInk},
              fit_text(options.title, static_cast<int>(width), kTitleScale));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    Placed& placed = all[i];
    placed.image.x = kMargin + static_cast<int>(i % columns) * (column_width + kGap);
    placed.image.y = static_cast<int>(tops[i]);
    draw_pixels(picture, scenes[i], placed.image, placed.zoom);
    draw_weights(picture, scenes[i], placed.image);
    draw_boxes(picture, scenes[i], placed.image, placed.zoom);
    picture.panels.push_back(
        {.map = i, .head = 0, .x = placed.image.x, .y = placed.image.y, .cell = placed.zoom});
    int line_y = placed.image.bottom() + kCaptionGap;
    for (const std::string& line : placed.caption) {
      draw_text(picture, {.x = placed.image.x, .y = line_y, .scale = kScale, .colour = kInk}, line);
      line_y += text_height(kScale);
    }
  }
  return picture;
}

}  // namespace fovea::inspect
