#include "inspect/charts.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <limits>

#include "fovea/core/error.h"
#include "inspect/page.h"
#include "inspect/unicode.h"

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

// The data's rectangle in the drawing and the values at its edges.
struct Frame {
  double left, top, right, bottom;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;

  double x(double value) const { return left + (value - x_low) / (x_high - x_low) * (right - left); }
  double y(double value) const { return bottom - (value - y_low) / (y_high - y_low) * (bottom - top); }
};

// Text width without a font at hand: 0.58 em an average letter of a sans-serif.
double text_width(const std::string& text, double size) {
  double units = 0;
  for (const char32_t code : decode_utf8(text)) units += width_of(code);
  return 0.58 * size * units;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = "") {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more.c_str()) +
         escape_html(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2,
                kind);
}

std::string tick_text(double value) {
  return format("%.6g", std::abs(value) < 1e-12 ? 0.0 : value);
}

// The axis title stands over the numbers, read from left to right, instead of along the axis.
std::string y_axis(const Frame& frame, const std::vector<double>& ticks, const std::string& label) {
  std::string out;
  for (const double tick : ticks) {
    out += line(frame.left, frame.y(tick), frame.right, frame.y(tick), tick == 0 ? "base" : "axis");
    out += text_at(frame.left - 8, frame.y(tick) + 4, "end", tick_text(tick));
  }
  return out + text_at(0, frame.top - 12, "start", label);
}

std::string open_figure(const std::string& title, const char* kind, int width, int height) {
  return format("<figure%s><figcaption>", kind) + escape_html(title) +
         format("</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", width, height) +
         escape_html(title) + "\">\n";
}

bool finite(const Point& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

struct EndLabel {
  const Curve* curve;
  Point end;
  double y;
};

// Moves labels apart until no two are closer than a line, keeping their order.
void spread(std::vector<EndLabel>& labels, double top, double bottom) {
  constexpr double kLine = 17;
  std::sort(labels.begin(), labels.end(), [](const EndLabel& a, const EndLabel& b) { return a.y < b.y; });
  double free = top;
  for (EndLabel& label : labels) {
    label.y = std::max(label.y, free);
    free = label.y + kLine;
  }
  double limit = bottom;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    label->y = std::min(label->y, limit);
    limit = label->y - kLine;
  }
}

std::string draw_curve(const Curve& curve, const Frame& frame, int colour) {
  std::string path;
  bool drawing = false;
  for (const Point& point : curve.points) {
    if (finite(point)) path += format("%c%.1f %.1f", drawing ? 'L' : 'M', frame.x(point.x), frame.y(point.y));
    drawing = finite(point);
  }
  std::string out = format("<path class=\"curve c%d\" d=\"", colour) + path + "\"/>\n";
  if (curve.points.size() > 40) return out;  // dots would run into a band
  for (const Point& point : curve.points) {
    if (!finite(point)) continue;
    out += format("<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", colour, frame.x(point.x),
                  frame.y(point.y)) +
           escape_html(curve.name + ": " + format("%.4g at %.4g", point.y, point.x)) + "</title></circle>\n";
  }
  return out;
}

// The frame that holds all finite points; false if there are none.
bool span(const LineChart& chart, Frame& frame) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  frame.x_low = frame.y_low = kInfinity;
  frame.x_high = frame.y_high = -kInfinity;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      if (!finite(point)) continue;
      frame.x_low = std::min(frame.x_low, point.x);
      frame.x_high = std::max(frame.x_high, point.x);
      frame.y_low = std::min(frame.y_low, point.y);
      frame.y_high = std::max(frame.y_high, point.y);
    }
  }
  if (frame.x_low > frame.x_high) return false;
  // Curves that start near zero show zero: the eye reads a cut axis as a larger change.
  if (frame.x_low > 0 && frame.x_low < 0.3 * frame.x_high) frame.x_low = 0;
  if (frame.y_low > 0 && frame.y_low < 0.5 * frame.y_high) frame.y_low = 0;
  return true;
}

std::string draw_labels(const LineChart& chart, const Frame& frame, Palette& palette) {
  std::vector<EndLabel> labels;
  for (const Curve& curve : chart.curves) {
    const auto last = std::find_if(curve.points.rbegin(), curve.points.rend(), finite);
    if (last != curve.points.rend()) labels.push_back({&curve, *last, frame.y(last->y)});
  }
  spread(labels, frame.top + 4, frame.bottom - 4);
  std::string out;
  for (const EndLabel& label : labels) {
    if (frame.x(label.end.x) < frame.right - 16 || std::abs(frame.y(label.end.y) - label.y) > 8) {
      out += line(frame.x(label.end.x) + 5, frame.y(label.end.y), frame.right + 6, label.y, "axis");
    }
    const std::string kind = format(" class=\"name f%d\"", palette.index(label.curve->name));
    out += text_at(frame.right + 10, label.y + 4, "start", label.curve->name, kind);
  }
  return out;
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int count) {
  if (!(high > low)) {
    const double pad = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= pad;
    high += pad;
  }
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double share = rough / power;
  const double step = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double k = first; k <= last; ++k) ticks.push_back(k * step);
  return ticks;
}

std::string draw_chart(const LineChart& chart, Palette& palette) {
  constexpr int kWidth = 640, kHeight = 350;
  double names = 0;
  for (const Curve& curve : chart.curves) names = std::max(names, text_width(curve.name, 13));
  std::string out = open_figure(chart.title, "", kWidth, kHeight);
  Frame frame{.left = 46, .top = 34, .right = kWidth - std::min(names, 240.0) - 14, .bottom = kHeight - 44};
  if (!span(chart, frame))
    return out + text_at(kWidth / 2.0, kHeight / 2.0, "middle", "no points") + "</svg></figure>\n";
  const std::vector<double> y_ticks = nice_ticks(frame.y_low, frame.y_high, 5);
  frame.y_low = y_ticks.front();
  frame.y_high = y_ticks.back();
  if (!(frame.x_high > frame.x_low)) {
    frame.x_low -= 0.5;
    frame.x_high += 0.5;
  }
  out += y_axis(frame, y_ticks, chart.y_label);
  for (const double tick : nice_ticks(frame.x_low, frame.x_high, 6)) {
    if (tick < frame.x_low - 1e-9 || tick > frame.x_high + 1e-9) continue;
    out += line(frame.x(tick), frame.bottom, frame.x(tick), frame.bottom + 4, "base");
    out += text_at(frame.x(tick), frame.bottom + 18, "middle", tick_text(tick));
  }
  out += text_at((frame.left + frame.right) / 2, frame.bottom + 38, "middle", chart.x_label);
  for (const Curve& curve : chart.curves) out += draw_curve(curve, frame, palette.index(curve.name));
  return out + draw_labels(chart, frame, palette) + "</svg></figure>\n";
}

std::string draw_chart(const BarChart& chart, Palette& palette) {
  constexpr int kWidth = 1180, kHeight = 350;
  double low = 0, high = 0;
  for (const BarSeries& series : chart.series) {
    if (series.values.size() != chart.buckets.size()) {
      throw InvalidArgument("render_report", chart.title + "." + series.name,
                            std::to_string(chart.buckets.size()) + " values (one a bucket)",
                            std::to_string(series.values.size()));
    }
    for (const double value : series.values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  std::string out = open_figure(chart.title, " class=\"wide\"", kWidth, kHeight);
  const std::vector<double> ticks = nice_ticks(low, high > low ? high : low + 1, 5);
  Frame frame{.left = 46, .top = 62, .right = kWidth - 4, .bottom = kHeight - 46};
  frame.y_low = ticks.front();
  frame.y_high = ticks.back();
  out += y_axis(frame, ticks, chart.y_label);
  double key = frame.left;
  for (const BarSeries& series : chart.series) {
    out += format("<rect class=\"f%d\" x=\"%.1f\" y=\"5\" width=\"13\" height=\"13\" rx=\"2\"/>\n",
                  palette.index(series.name), key);
    out += text_at(key + 19, 16, "start", series.name,
                   format(" class=\"name f%d\"", palette.index(series.name)));
    key += 19 + text_width(series.name, 13.5) + 30;
  }
  const double group = (frame.right - frame.left) / std::max<std::size_t>(1, chart.buckets.size());
  const double bar = std::min(72.0, 0.8 * group / std::max<std::size_t>(1, chart.series.size()));
  for (std::size_t b = 0; b < chart.buckets.size(); ++b) {
    const double centre = frame.left + (static_cast<double>(b) + 0.5) * group;
    out += text_at(centre, frame.bottom + 19, "middle", chart.buckets[b]);
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      const double value = chart.series[s].values[b];
      const double x = centre + bar * (static_cast<double>(s) - static_cast<double>(chart.series.size()) / 2);
      if (!std::isfinite(value)) {
        out += text_at(x + bar / 2, frame.y(0) - 6, "middle", "–", " class=\"value\"");
        continue;
      }
      const double top = std::min(frame.y(value), frame.y(0)), height = std::abs(frame.y(value) - frame.y(0));
      out +=
          format("<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"><title>",
                 palette.index(chart.series[s].name), x + 1.5, top, bar - 3, std::max(height, 0.8)) +
          escape_html(chart.series[s].name + ", " + chart.buckets[b] + ": " + format("%.4g", value)) +
          "</title></rect>\n";
      if (bar >= 24) {
        out += text_at(x + bar / 2, value < 0 ? top + height + 13 : top - 6, "middle", format("%.1f", value),
                       " class=\"value\"");
      }
    }
  }
  return out + text_at((frame.left + frame.right) / 2, frame.bottom + 40, "middle", chart.x_label) +
         "</svg></figure>\n";
}

}  // namespace fovea::inspect
