#include "fovea/pictures/render.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <numbers>
#include <set>
#include <type_traits>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "inspect/page.h"
#include "inspect/unicode.h"
#include "pictures/svg_text.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::Grid;
using inspect::Image;
using inspect::Path;
using inspect::Point;
using inspect::Rectangle;
using inspect::Rgb;
using inspect::Step;
using inspect::Text;

struct DestroySurface {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
struct DestroyCairo {
  void operator()(cairo_t* cairo) const { cairo_destroy(cairo); }
};
using Surface = std::unique_ptr<cairo_surface_t, DestroySurface>;
using Cairo = std::unique_ptr<cairo_t, DestroyCairo>;

void require(cairo_status_t status) {
  if (status == CAIRO_STATUS_NO_MEMORY) throw std::bad_alloc();
  if (status != CAIRO_STATUS_SUCCESS)
    throw Error(std::string("render: Cairo: ") + cairo_status_to_string(status));
}

// `scale` pixels a unit: an image of [rows, columns] colours, each repeated, because viewers of SVG and PDF
// would otherwise blur it.
Surface surface_of(const Image& image, double scale) {
  const auto repeat = [&](double units, int count) {
    return std::clamp(static_cast<int>(std::ceil(units * scale / count - 1e-9)), 1,
                      std::max(1, 4096 / count));
  };
  const int across = repeat(image.width, image.columns), down = repeat(image.height, image.rows);
  Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, image.columns * across, image.rows * down));
  require(cairo_surface_status(surface.get()));
  unsigned char* bytes = cairo_image_surface_get_data(surface.get());
  const int stride = cairo_image_surface_get_stride(surface.get());
  for (int y = 0; y < image.rows * down; ++y) {
    auto* line = reinterpret_cast<std::uint32_t*>(bytes + static_cast<std::ptrdiff_t>(y) * stride);
    for (int x = 0; x < image.columns * across; ++x) {
      const Rgb colour =
          image.pixels[static_cast<std::size_t>(y / down) * static_cast<std::size_t>(image.columns) +
                       static_cast<std::size_t>(x / across)];
      line[x] = 0xFF000000U | static_cast<std::uint32_t>(colour.red) << 16 |
                static_cast<std::uint32_t>(colour.green) << 8 | colour.blue;
    }
  }
  cairo_surface_mark_dirty(surface.get());
  return surface;
}

class Pen {
 public:
  Pen(cairo_surface_t* surface, Theme theme, double scale) : cairo_(cairo_create(surface)), theme_(theme) {
    require(cairo_status(cairo_.get()));
    cairo_scale(cairo_.get(), scale, scale);
    scale_ = scale;
  }

  void draw(const Drawing& drawing) {
    set({inspect::Tone::paper});
    cairo_paint(cairo_.get());
    for (const inspect::Item& item : drawing.items) std::visit([&](const auto& i) { put(i); }, item);
    require(cairo_status(cairo_.get()));
  }

  const std::set<char32_t>& uncovered() const { return uncovered_; }

 private:
  cairo_t* cairo() { return cairo_.get(); }

  void set(const inspect::Paint& paint) {
    const Rgb colour = inspect::colour_of(paint, theme_);
    cairo_set_source_rgba(cairo(), colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0,
                          paint.opacity);
  }

  void put(const Rectangle& r) {
    set(r.fill);
    const double radius = std::min({r.radius, r.width / 2, r.height / 2});
    if (radius > 0) {
      constexpr double kQuarter = std::numbers::pi / 2;
      cairo_new_sub_path(cairo());
      cairo_arc(cairo(), r.x + r.width - radius, r.y + radius, radius, -kQuarter, 0);
      cairo_arc(cairo(), r.x + r.width - radius, r.y + r.height - radius, radius, 0, kQuarter);
      cairo_arc(cairo(), r.x + radius, r.y + r.height - radius, radius, kQuarter, 2 * kQuarter);
      cairo_arc(cairo(), r.x + radius, r.y + radius, radius, 2 * kQuarter, 3 * kQuarter);
      cairo_close_path(cairo());
    } else {
      cairo_rectangle(cairo(), r.x, r.y, r.width, r.height);
    }
    cairo_fill(cairo());
  }

  void put(const Path& path) {
    if (path.steps.empty()) return;
    set(path.stroke);
    cairo_set_line_width(cairo(), path.width);
    cairo_set_line_cap(cairo(), path.width > 1 ? CAIRO_LINE_CAP_ROUND : CAIRO_LINE_CAP_BUTT);
    cairo_set_line_join(cairo(), CAIRO_LINE_JOIN_ROUND);
    for (const Step& step : path.steps) {
      if (step.kind == Step::Kind::move) {
        cairo_move_to(cairo(), step.to.x, step.to.y);
      } else if (step.kind == Step::Kind::line) {
        cairo_line_to(cairo(), step.to.x, step.to.y);
      } else {
        cairo_curve_to(cairo(), step.first.x, step.first.y, step.second.x, step.second.y, step.to.x,
                       step.to.y);
      }
    }
    cairo_stroke(cairo());
  }

  void put(const Text& text) {
    set(text.paint);
    draw_text(cairo(), text, uncovered_);
  }

  // Cells with a gap between them are shapes, sharp at every size. Without a gap they are one image: viewers
  // show seams between shapes that touch, and a map of 512 x 512 would be 20 MB of SVG.
  void put(const Grid& grid) {
    const auto colour = [&](std::size_t i) {
      return inspect::colour_of(static_cast<double>(grid.positions[i]), theme_);
    };
    if (grid.gap == 0) {
      Image image{.x = grid.x,
                  .y = grid.y,
                  .width = grid.columns * grid.cell,
                  .height = grid.rows * grid.cell,
                  .rows = grid.rows,
                  .columns = grid.columns,
                  .pixels = {}};
      image.pixels.reserve(grid.positions.size());
      for (std::size_t i = 0; i < grid.positions.size(); ++i) image.pixels.push_back(colour(i));
      return put(image);
    }
    std::size_t i = 0;
    for (int row = 0; row < grid.rows; ++row) {
      for (int column = 0; column < grid.columns; ++column) {
        set({colour(i++)});
        cairo_rectangle(cairo(), grid.x + column * grid.cell, grid.y + row * grid.cell, grid.cell - grid.gap,
                        grid.cell - grid.gap);
        cairo_fill(cairo());
      }
    }
  }

  void put(const Image& image) {
    if (image.rows == 0 || image.columns == 0) return;
    const Surface pixels = surface_of(image, std::max(2.0, scale_));
    cairo_save(cairo());
    cairo_rectangle(cairo(), image.x, image.y, image.width, image.height);
    cairo_clip(cairo());
    cairo_translate(cairo(), image.x, image.y);
    cairo_scale(cairo(), image.width / cairo_image_surface_get_width(pixels.get()),
                image.height / cairo_image_surface_get_height(pixels.get()));
    cairo_set_source_surface(cairo(), pixels.get(), 0, 0);
    cairo_pattern_set_filter(cairo_get_source(cairo()), CAIRO_FILTER_NEAREST);
    cairo_paint(cairo());
    cairo_restore(cairo());
  }

  Cairo cairo_;
  Theme theme_;
  double scale_ = 1;
  std::set<char32_t> uncovered_;
};

// No exception may pass through Cairo, which is C.
cairo_status_t append(void* to, const unsigned char* bytes, unsigned int count) {
  try {
    static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), count);
    return CAIRO_STATUS_SUCCESS;
  } catch (...) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

// The numbers of an item that Cairo and Pango do not refuse by name: Pango writes to stderr, and Cairo leaves
// a shape out or says "invalid matrix".
class CheckItem {
 public:
  explicit CheckItem(std::size_t number) : number_(number) {}

  void operator()(const Rectangle& r) const {
    check_paint(r.fill);
    check_numbers({r.x, r.y, r.width, r.height, r.radius});
  }
  void operator()(const Path& path) const {
    check_paint(path.stroke);
    check_numbers({path.width});
    for (const Step& step : path.steps)
      check_numbers({step.to.x, step.to.y, step.first.x, step.first.y, step.second.x, step.second.y});
  }
  void operator()(const Text& text) const {
    check_paint(text.paint);
    if (!(text.size > 0 && text.size <= largest_text))
      refuse("a size above 0 and at most 1,000 units", std::to_string(text.size));
    check_numbers({text.x, text.y});
  }
  void operator()(const Grid& grid) const {
    check_cells(grid.rows, grid.columns, grid.positions.size());
    check_numbers({grid.x, grid.y, grid.cell, grid.gap});
    if (!grid.positions.empty()) check_sides(grid.cell, grid.cell);
  }
  void operator()(const Image& image) const {
    check_cells(image.rows, image.columns, image.pixels.size());
    check_numbers({image.x, image.y, image.width, image.height});
    if (!image.pixels.empty()) check_sides(image.width, image.height);
  }

 private:
  static constexpr double largest_text = 1000, largest_place = 1e7;

  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const {
    throw InvalidArgument("render", "drawing.items[" + std::to_string(number_) + "]", expected, got);
  }
  void check_numbers(std::initializer_list<double> numbers) const {
    for (const double number : numbers)
      if (!(std::abs(number) <= largest_place))
        refuse("places and sides of at most 10,000,000 units", std::to_string(number));
  }
  void check_sides(double width, double height) const {
    if (!(width > 0 && height > 0))
      refuse("sides above 0", std::to_string(width) + " x " + std::to_string(height));
  }
  void check_paint(const inspect::Paint& paint) const {
    const auto* series = std::get_if<inspect::Series>(&paint.colour);
    if (series && series->index < 0) refuse("the colour of a series from 0", std::to_string(series->index));
    if (!std::isfinite(paint.opacity)) refuse("a finite opacity", std::to_string(paint.opacity));
  }
  void check_cells(int rows, int columns, std::size_t count) const {
    if (rows < 0 || columns < 0 ||
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) != count)
      refuse("rows x columns colours",
             std::to_string(count) + " for " + std::to_string(rows) + " x " + std::to_string(columns));
  }

  std::size_t number_;
};

void check(const Drawing& drawing, const RenderOptions& options) {
  const auto size = [&] { return std::to_string(drawing.width) + " x " + std::to_string(drawing.height); };
  if (!(drawing.width > 0 && drawing.height > 0 && drawing.width < 1e7 && drawing.height < 1e7))
    throw InvalidArgument("render", "drawing", "sides above 0 and below 10,000,000 units", size());
  if (!(options.scale >= 0.1 && options.scale <= 16))
    throw InvalidArgument("render", "options.scale", "0.1 to 16", std::to_string(options.scale));
  for (std::size_t n = 0; n < drawing.items.size(); ++n) std::visit(CheckItem(n), drawing.items[n]);
}

struct Pixels {
  int width = 0, height = 0;
  double scale = 1;
};

Pixels pixels_of(const Drawing& drawing, double scale) {
  constexpr double kSide = 32767, kAll = 1 << 28;
  scale = std::min({scale, kSide / std::ceil(drawing.width), kSide / std::ceil(drawing.height),
                    std::sqrt(kAll / (std::ceil(drawing.width) * std::ceil(drawing.height)))});
  if (scale < 0.1) {
    throw InvalidArgument("render", "drawing",
                          "a size that fits 32,767 pixels a side and 2^28 in all, or SVG",
                          std::to_string(drawing.width) + " x " + std::to_string(drawing.height) + " units");
  }
  const auto side = [&](double units) {
    return std::max(1, static_cast<int>(std::floor(units * scale + 1e-6)));
  };
  return {side(drawing.width), side(drawing.height), scale};
}

struct Painted {
  Surface surface;
  std::set<char32_t> uncovered;
};

Painted paint(const Drawing& drawing, const RenderOptions& options) {
  const Pixels pixels = pixels_of(drawing, options.scale);
  Painted painted{Surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, pixels.width, pixels.height)), {}};
  require(cairo_surface_status(painted.surface.get()));
  Pen pen(painted.surface.get(), options.theme, pixels.scale);
  pen.draw(drawing);
  painted.uncovered = pen.uncovered();
  cairo_surface_flush(painted.surface.get());
  return painted;
}

Surface vector_surface(const Drawing& drawing, Format format, double scale, std::string& bytes) {
  const double width = drawing.width * scale, height = drawing.height * scale;
  if (format == Format::svg) {
    Surface surface(cairo_svg_surface_create_for_stream(append, &bytes, width, height));
    require(cairo_surface_status(surface.get()));
    cairo_svg_surface_set_document_unit(surface.get(), CAIRO_SVG_UNIT_PX);
    return surface;
  }
  Surface surface(cairo_pdf_surface_create_for_stream(append, &bytes, width, height));
  require(cairo_surface_status(surface.get()));
  // Cairo writes the hour otherwise, and two runs would differ.
  cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
  const std::string title = inspect::writable(drawing.title, inspect::Lines::one);
  cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_TITLE, title.c_str());
  return surface;
}

Uncovered texts_of(const std::set<char32_t>& codes) {
  Uncovered texts;
  for (const char32_t code : codes) inspect::append_utf8(texts.emplace_back(), code);
  return texts;
}

}  // namespace

Format format_of(const std::string& path, const std::string& function) {
  const std::size_t dot = path.find_last_of("./");
  std::string suffix = dot == std::string::npos || path[dot] == '/' ? "" : path.substr(dot);
  for (char& c : suffix) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (suffix == ".png") return Format::png;
  if (suffix == ".svg") return Format::svg;
  if (suffix == ".pdf") return Format::pdf;
  throw InvalidArgument(function, "path", "a name that ends in .png, .svg or .pdf", "'" + path + "'");
}

Rendered render(const Drawing& drawing, Format format, const RenderOptions& options) {
  check(drawing, options);
  Rendered rendered;
  if (format == Format::png) {
    const Painted painted = paint(drawing, options);
    rendered.uncovered = texts_of(painted.uncovered);
    require(cairo_surface_write_to_png_stream(painted.surface.get(), append, &rendered.bytes));
    return rendered;
  }
  // A PDF counts in points of 1/72 inch, and Acrobat shows pages up to 14,400 of them.
  const double scale =
      format == Format::svg ? 1 : std::min(0.75, 14400 / std::max(drawing.width, drawing.height));
  const Surface surface = vector_surface(drawing, format, scale, rendered.bytes);
  {
    Pen pen(surface.get(), options.theme, scale);
    pen.draw(drawing);
    rendered.uncovered = texts_of(pen.uncovered());
  }
  cairo_surface_finish(surface.get());
  require(cairo_surface_status(surface.get()));
  if (format == Format::svg) rendered.bytes = with_description(rendered.bytes, drawing);
  return rendered;
}

Uncovered write(const std::string& path, const Drawing& drawing, const RenderOptions& options) {
  const Rendered rendered = render(drawing, format_of(path, "write"), options);
  files::write_file(path, rendered.bytes);
  return rendered.uncovered;
}

Raster rasterise(const Drawing& drawing, const RenderOptions& options) {
  check(drawing, options);
  const Painted painted = paint(drawing, options);
  Raster raster{cairo_image_surface_get_width(painted.surface.get()),
                cairo_image_surface_get_height(painted.surface.get()),
                {}};
  const unsigned char* bytes = cairo_image_surface_get_data(painted.surface.get());
  const std::ptrdiff_t stride = cairo_image_surface_get_stride(painted.surface.get());
  raster.rgb.reserve(3 * static_cast<std::size_t>(raster.width) * static_cast<std::size_t>(raster.height));
  for (int y = 0; y < raster.height; ++y) {
    const auto* line = reinterpret_cast<const std::uint32_t*>(bytes + y * stride);
    for (int x = 0; x < raster.width; ++x) {
      for (const int shift : {16, 8, 0}) raster.rgb.push_back(static_cast<std::uint8_t>(line[x] >> shift));
    }
  }
  return raster;
}

}  // namespace fovea::pictures
