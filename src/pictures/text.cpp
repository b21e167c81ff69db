#include "pictures/text.h"

#include <pango/pangocairo.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "inspect/unicode.h"

namespace fovea::pictures {
namespace {

using inspect::Anchor;
using inspect::Direction;
using inspect::Overflow;
using inspect::Text;
using inspect::Weight;

struct Unref {
  void operator()(void* object) const { g_object_unref(object); }
};
struct FreeFont {
  void operator()(PangoFontDescription* font) const { pango_font_description_free(font); }
};
struct FreeOptions {
  void operator()(cairo_font_options_t* options) const { cairo_font_options_destroy(options); }
};
using Context = std::unique_ptr<PangoContext, Unref>;
using Layout = std::unique_ptr<PangoLayout, Unref>;

// One for a thread, because making it reads the fonts' configuration. Letters are placed without rounding to
// pixels, so that a text is equally wide in every format and at every scale.
Context make_context(PangoGravity gravity) {
  Context fresh(pango_font_map_create_context(pango_cairo_font_map_get_default()));
  const std::unique_ptr<cairo_font_options_t, FreeOptions> options(cairo_font_options_create());
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
  pango_cairo_context_set_font_options(fresh.get(), options.get());
  pango_context_set_round_glyph_positions(fresh.get(), FALSE);
  // Not that of the locale, which would choose other shapes of a character on another machine.
  pango_context_set_language(fresh.get(), pango_language_from_string("en"));
  pango_context_set_base_gravity(fresh.get(), gravity);
  return fresh;
}

// A line that runs upward lies on its side, and so do its Latin letters. Characters of scripts that are also
// written in columns, such as Chinese, stay upright on the page: their feet point to the line's beginning.
PangoContext* context(Direction direction) {
  thread_local const Context along = make_context(PANGO_GRAVITY_SOUTH), up = make_context(PANGO_GRAVITY_WEST);
  return direction == Direction::up ? up.get() : along.get();
}

// No more than an int holds.
int in_pango(double units) {
  constexpr double most = 1e6;
  return static_cast<int>(std::lround(std::min(units, most) * PANGO_SCALE));
}

Layout lay_out(const Text& text) {
  Layout layout(pango_layout_new(context(text.direction)));
  const std::unique_ptr<PangoFontDescription, FreeFont> font(pango_font_description_new());
  pango_font_description_set_family_static(font.get(), "sans-serif");
  pango_font_description_set_absolute_size(font.get(), text.size * PANGO_SCALE);
  if (text.weight == Weight::bold) pango_font_description_set_weight(font.get(), PANGO_WEIGHT_BOLD);
  pango_layout_set_font_description(layout.get(), font.get());
  const bool wrap = text.overflow == Overflow::wrap && text.limit > 0;
  const std::string shown =
      inspect::writable(text.text, wrap ? inspect::Lines::several : inspect::Lines::one);
  pango_layout_set_text(layout.get(), shown.data(), static_cast<int>(shown.size()));
  if (text.limit > 0) {
    int width = 0;
    pango_layout_get_size(layout.get(), &width, nullptr);
    // A width also sets where lines of right-to-left text begin, so it is set only where it is needed.
    if (width > in_pango(text.limit)) {
      pango_layout_set_width(layout.get(), in_pango(text.limit));
      if (wrap) {
        pango_layout_set_wrap(layout.get(), PANGO_WRAP_WORD_CHAR);
      } else {
        pango_layout_set_ellipsize(layout.get(), PANGO_ELLIPSIZE_END);
      }
    }
  }
  return layout;
}

// Upright characters of some fonts (WenQuanYi Micro Hei) are drawn most of their height before the place that
// the line has for them. Those are moved into the middle of their place.
void center_upright(PangoLayoutLine* line) {
  for (GSList* run = line->runs; run != nullptr; run = run->next) {
    const auto* shown = static_cast<PangoLayoutRun*>(run->data);
    if (shown->item->analysis.gravity != PANGO_GRAVITY_WEST) continue;
    for (int i = 0; i < shown->glyphs->num_glyphs; ++i) {
      PangoGlyphInfo& glyph = shown->glyphs->glyphs[i];
      PangoRectangle ink, place;
      pango_font_get_glyph_extents(shown->item->analysis.font, glyph.glyph, &ink, &place);
      ink.x += glyph.geometry.x_offset;
      if (ink.x >= 0 && ink.x + ink.width <= glyph.geometry.width) continue;
      glyph.geometry.x_offset += (glyph.geometry.width - ink.width) / 2 - ink.x;
    }
  }
}

void collect_uncovered(PangoLayout* layout, std::set<char32_t>& uncovered) {
  if (pango_layout_get_unknown_glyphs_count(layout) == 0) return;
  for (GSList* line = pango_layout_get_lines_readonly(layout); line != nullptr; line = line->next) {
    for (GSList* run = static_cast<PangoLayoutLine*>(line->data)->runs; run != nullptr; run = run->next) {
      const PangoGlyphString* glyphs = static_cast<PangoLayoutRun*>(run->data)->glyphs;
      for (int i = 0; i < glyphs->num_glyphs; ++i) {
        const PangoGlyph glyph = glyphs->glyphs[i].glyph;
        if ((glyph & PANGO_GLYPH_UNKNOWN_FLAG) != 0) uncovered.insert(glyph & ~PANGO_GLYPH_UNKNOWN_FLAG);
      }
    }
  }
}

}  // namespace

double text_width(const std::string& text, double size, Weight weight) {
  const Layout layout = lay_out(Text{.text = text, .size = size, .paint = {}, .weight = weight});
  int width = 0;
  pango_layout_get_size(layout.get(), &width, nullptr);
  return static_cast<double>(width) / PANGO_SCALE;
}

int line_count(const std::string& text, double size, double limit) {
  if (text.empty()) return 0;
  return pango_layout_get_line_count(
      lay_out(Text{.text = text, .size = size, .paint = {}, .limit = limit, .overflow = Overflow::wrap})
          .get());
}

double line_height(double size) {
  return std::ceil(2 * size * 1.3) / 2;
}

void draw_text(cairo_t* cairo, const Text& text, std::set<char32_t>& uncovered) {
  const Layout layout = lay_out(text);
  collect_uncovered(layout.get(), uncovered);
  cairo_save(cairo);
  cairo_translate(cairo, text.x, text.y);
  if (text.direction == Direction::up) cairo_rotate(cairo, -std::numbers::pi / 2);
  const std::unique_ptr<PangoLayoutIter, decltype(&pango_layout_iter_free)> line(
      pango_layout_get_iter(layout.get()), &pango_layout_iter_free);
  int number = 0;
  do {
    PangoLayoutLine* shown = pango_layout_iter_get_line(line.get());
    center_upright(shown);
    PangoRectangle extents;
    pango_layout_line_get_extents(shown, nullptr, &extents);
    const double width = static_cast<double>(extents.width) / PANGO_SCALE;
    const double share = text.anchor == Anchor::start ? 0 : text.anchor == Anchor::middle ? 0.5 : 1;
    cairo_move_to(cairo, -share * width, number++ * line_height(text.size));
    pango_cairo_show_layout_line(cairo, shown);
  } while (pango_layout_iter_next_line(line.get()));
  cairo_restore(cairo);
}

}  // namespace fovea::pictures
