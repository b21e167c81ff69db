// A drawing as an <svg> element inside a page. Colours are classes, because the page's theme can change while
// one looks, and its policy allows no style attributes.
#include <cstdarg>
#include <cstdio>

#include "inspect/charts.h"
#include "inspect/page.h"

namespace fovea::inspect {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

// The class that fills with the paint, or draws a line of it.
std::string paint_class(const Paint& paint, char use) {
  if (const auto* series = std::get_if<Series>(&paint.colour)) return format("%c%d", use, series->index);
  if (const auto* tone = std::get_if<Tone>(&paint.colour)) {
    constexpr const char* kNames[] = {"paper", "ink", "quiet", "line", "accent"};
    return format("%c-%s", use, kNames[static_cast<int>(*tone)]);
  }
  return format("%c-ink", use);
}

struct Element {
  std::string operator()(const Rectangle& r) const {
    std::string out =
        format("<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%g\"",
               paint_class(r.fill, 'f').c_str(), r.x, r.y, r.width, r.height, r.radius);
    return out + (r.note.empty() ? "/>\n" : "><title>" + escape_html(r.note) + "</title></rect>\n");
  }
  std::string operator()(const Path& path) const {
    std::string steps;
    for (const Step& step : path.steps) {
      if (step.kind == Step::Kind::curve)
        steps += format("C%.1f %.1f %.1f %.1f ", step.first.x, step.first.y, step.second.x, step.second.y);
      if (step.kind != Step::Kind::curve) steps += step.kind == Step::Kind::move ? 'M' : 'L';
      steps += format("%.1f %.1f", step.to.x, step.to.y);
    }
    return format("<path class=\"%s\" stroke-width=\"%g\" d=\"", paint_class(path.stroke, 'c').c_str(),
                  path.width) +
           steps + "\"/>\n";
  }
  std::string operator()(const Text& text) const {
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    return format("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%g\"%s text-anchor=\"%s\">",
                  paint_class(text.paint, 'f').c_str(), text.x, text.y, text.size,
                  text.weight == Weight::bold ? " font-weight=\"600\"" : "",
                  kAnchors[static_cast<int>(text.anchor)]) +
           escape_html(text.text) + "</text>\n";
  }
  // No chart holds these.
  std::string operator()(const Grid&) const { return {}; }
  std::string operator()(const Image&) const { return {}; }
};

}  // namespace

std::string svg_element(const Drawing& drawing) {
  std::string out =
      format("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", drawing.width, drawing.height) +
      escape_html(drawing.title) + "\">\n";
  for (const Item& item : drawing.items) out += std::visit(Element{}, item);
  return out + "</svg>";
}

}  // namespace fovea::inspect
