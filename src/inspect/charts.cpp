#include "inspect/charts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "fovea/core/error.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

constexpr double kText = 12.5, kName = 13, kValue = 11.5;

std::string number(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

double scaled(Scale scale, double value) {
  return scale == Scale::log10 ? std::log10(value) : scale == Scale::log2 ? std::log2(value) : value;
}
double unscaled(Scale scale, double value) {
  return scale == Scale::log10 ? std::pow(10.0, value) : scale == Scale::log2 ? std::exp2(value) : value;
}

// The data's rectangle in the drawing and the values at its edges, which are logarithms where an axis is one
// of logarithms.
struct Frame {
  double left, top, right, bottom;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  Scale x_scale = Scale::linear, y_scale = Scale::linear;

  double x(double value) const {
    return left + (scaled(x_scale, value) - x_low) / (x_high - x_low) * (right - left);
  }
  double y(double value) const {
    return bottom - (scaled(y_scale, value) - y_low) / (y_high - y_low) * (bottom - top);
  }
};

void put_text(Drawing& drawing, double x, double y, Anchor anchor, const std::string& text) {
  drawing.items.push_back(
      Text{.x = x, .y = y, .text = text, .size = kText, .paint = {Tone::quiet}, .anchor = anchor});
}

void put_line(Drawing& drawing, Point from, Point to, Tone tone) {
  drawing.items.push_back(
      Path{.steps = {{.kind = Step::Kind::move, .to = from}, {.to = to}}, .stroke = {tone}});
}

std::string tick_text(double value) {
  return number("%.6g", std::abs(value) < 1e-12 ? 0.0 : value);
}

// Numbers of an axis. One of logarithms has whole powers, unless there would be too many or fewer than two.
std::vector<double> ticks_between(double low, double high, Scale scale, int count) {
  std::vector<double> ticks = nice_ticks(low, high, count);
  if (scale != Scale::linear) {
    const double step = std::max(1.0, std::round(ticks.size() > 1 ? ticks[1] - ticks[0] : 1.0));
    ticks.clear();
    for (double k = std::floor(low / step + 1e-9); k <= std::ceil(high / step - 1e-9); ++k)
      ticks.push_back(k * step);
    if (ticks.size() < 2) ticks.push_back(ticks.back() + step);
  }
  for (double& tick : ticks) tick = unscaled(scale, tick);
  return ticks;
}

// The axis title stands over the numbers, read from left to right, instead of along the axis.
void put_y_axis(Drawing& drawing, const Frame& frame, const std::vector<double>& ticks,
                const std::string& label) {
  for (const double tick : ticks) {
    put_line(drawing, {frame.left, frame.y(tick)}, {frame.right, frame.y(tick)},
             tick == 0 ? Tone::quiet : Tone::line);
    put_text(drawing, frame.left - 8, frame.y(tick) + 4, Anchor::end, tick_text(tick));
  }
  put_text(drawing, 0, frame.top - 12, Anchor::start, label);
}

// Whether a point has a place: zero and less have none on an axis of logarithms.
bool finite(const Point& point, const Frame& frame) {
  return std::isfinite(scaled(frame.x_scale, point.x)) && std::isfinite(scaled(frame.y_scale, point.y));
}

struct EndLabel {
  const Curve* curve;
  Point end;
  double y;
};

// Moves labels apart until no two are closer than a line, keeping their order. Labels that touch become a
// group whose middle is that of their curves' ends, so that no label is moved farther than it must be.
void spread(std::vector<EndLabel>& labels, double top, double bottom) {
  constexpr double kLine = 17;
  std::sort(labels.begin(), labels.end(), [](const EndLabel& a, const EndLabel& b) { return a.y < b.y; });
  struct Group {
    std::size_t first, count;
    double sum;  // of where each label would have the first of its group
    double y(double top, double bottom) const {
      const auto n = static_cast<double>(count);
      return std::max(std::min(sum / n, bottom - (n - 1) * kLine), top);
    }
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    groups.push_back({i, 1, labels[i].y});
    while (groups.size() > 1) {
      const Group& last = groups.back();
      Group& before = groups[groups.size() - 2];
      const double behind = static_cast<double>(before.count) * kLine;
      if (before.y(top, bottom) + behind <= last.y(top, bottom)) break;
      before.sum += last.sum - static_cast<double>(last.count) * behind;
      before.count += last.count;
      groups.pop_back();
    }
  }
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < group.count; ++i)
      labels[group.first + i].y = group.y(top, bottom) + static_cast<double>(i) * kLine;
  }
}

void put_curve(Drawing& drawing, const Curve& curve, const Frame& frame, int colour) {
  Path path{.steps = {}, .stroke = {Series{colour}}, .width = 2.2};
  bool drawing_on = false;
  for (const Point& point : curve.points) {
    if (finite(point, frame)) {
      path.steps.push_back({.kind = drawing_on ? Step::Kind::line : Step::Kind::move,
                            .to = {frame.x(point.x), frame.y(point.y)}});
    }
    drawing_on = finite(point, frame);
  }
  drawing.items.push_back(std::move(path));
  if (curve.points.size() > 40) return;  // dots would run into a band
  for (const Point& point : curve.points) {
    if (!finite(point, frame)) continue;
    drawing.items.push_back(
        Rectangle{.x = frame.x(point.x) - 3,
                  .y = frame.y(point.y) - 3,
                  .width = 6,
                  .height = 6,
                  .fill = {Series{colour}},
                  .radius = 3,
                  .note = curve.name + ": " + number("%.4g", point.y) + " at " + number("%.4g", point.x)});
  }
}

// The frame that holds all finite points; false if there are none.
bool span(const LineChart& chart, Frame& frame) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  frame.x_low = frame.y_low = kInfinity;
  frame.x_high = frame.y_high = -kInfinity;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      if (!finite(point, frame)) continue;
      const double x = scaled(frame.x_scale, point.x), y = scaled(frame.y_scale, point.y);
      frame.x_low = std::min(frame.x_low, x);
      frame.x_high = std::max(frame.x_high, x);
      frame.y_low = std::min(frame.y_low, y);
      frame.y_high = std::max(frame.y_high, y);
    }
  }
  if (frame.x_low > frame.x_high) return false;
  // If curves start near zero the axis starts at zero, because a cut axis makes a change look larger.
  const bool linear_x = frame.x_scale == Scale::linear, linear_y = frame.y_scale == Scale::linear;
  if (linear_x && frame.x_low > 0 && frame.x_low < 0.3 * frame.x_high) frame.x_low = 0;
  if (linear_y && frame.y_low > 0 && frame.y_low < 0.5 * frame.y_high) frame.y_low = 0;
  return true;
}

std::vector<EndLabel> labels_of(const LineChart& chart, const Frame& frame) {
  std::vector<EndLabel> labels;
  for (const Curve& curve : chart.curves) {
    const auto last = std::find_if(curve.points.rbegin(), curve.points.rend(),
                                   [&](const Point& point) { return finite(point, frame); });
    if (last != curve.points.rend()) labels.push_back({&curve, *last, frame.y(last->y)});
  }
  spread(labels, frame.top + 4, frame.bottom - 4);
  return labels;
}

// Whether a line leads from the curve's end to its label.
bool is_led(const EndLabel& label, const Frame& frame) {
  return frame.x(label.end.x) < frame.right - 16 || std::abs(frame.y(label.end.y) - label.y) > 8;
}

// Lines to labels fan out in a gap of their own: of seven that begin at nearly the same place none could be
// followed otherwise.
void put_labels(Drawing& drawing, const LineChart& chart, const Frame& frame, double gap, Palette& palette) {
  for (const EndLabel& label : labels_of(chart, frame)) {
    const Series colour{palette.index(label.curve->name)};
    if (is_led(label, frame))
      drawing.items.push_back(
          Path{.steps = {{.kind = Step::Kind::move, .to = {frame.x(label.end.x) + 5, frame.y(label.end.y)}},
                         {.to = {frame.right + gap - 4, label.y}}},
               .stroke = {Tone::quiet}});
    drawing.items.push_back(Text{.x = frame.right + gap,
                                 .y = label.y + 4,
                                 .text = label.curve->name,
                                 .size = kName,
                                 .paint = {colour},
                                 .weight = Weight::bold,
                                 .limit = drawing.width - frame.right - gap});
  }
}

struct Bars {
  const BarChart& chart;
  const Frame& frame;
  double group, width;  // of a bucket, of a bar
};

void put_bar(Drawing& drawing, const Bars& bars, std::size_t bucket, std::size_t series, int colour) {
  const auto& [chart, frame, group, width] = bars;
  const double center = frame.left + (static_cast<double>(bucket) + 0.5) * group;
  const double x =
      center + width * (static_cast<double>(series) - static_cast<double>(chart.series.size()) / 2);
  const double value = chart.series[series].values[bucket];
  const auto put_value = [&](double y, const std::string& text) {
    // Paper behind the text, so that no line of the grid strikes it through.
    const double wide = rough_width(text, kValue, Weight::normal) + 4;
    drawing.items.push_back(Rectangle{
        .x = x + (width - wide) / 2, .y = y - 10, .width = wide, .height = 13, .fill = {Tone::paper}});
    drawing.items.push_back(Text{.x = x + width / 2,
                                 .y = y,
                                 .text = text,
                                 .size = kValue,
                                 .paint = {Tone::quiet},
                                 .anchor = Anchor::middle});
  };
  if (!std::isfinite(value)) return put_value(frame.y(0) - 6, "–");
  const double top = std::min(frame.y(value), frame.y(0)), height = std::abs(frame.y(value) - frame.y(0));
  drawing.items.push_back(Rectangle{
      .x = x + 1.5,
      .y = top,
      .width = width - 3,
      .height = std::max(height, 0.8),
      .fill = {Series{colour}},
      .radius = 2,
      .note = chart.series[series].name + ", " + chart.buckets[bucket] + ": " + number("%.4g", value)});
  if (width >= 24) put_value(value < 0 ? top + height + 13 : top - 6, number("%.1f", value));
}

constexpr double kSwatch = 19, kGap = 30;  // of the key above the bars

// Room for the value above each bar and for the names in one line, but no more: a wide picture is shown
// small.
double bar_chart_width(const BarChart& chart, const Measure& measure) {
  constexpr double kBar = 42, kBetween = 34, kAxes = 50, kNarrowest = 640, kWidest = 1180;
  double names = kAxes;
  for (const BarSeries& series : chart.series)
    names += kSwatch + measure(series.name, kName, Weight::bold) + kGap;
  const auto buckets = static_cast<double>(chart.buckets.size()),
             bars = static_cast<double>(chart.series.size());
  return std::clamp(std::max(names, kAxes + buckets * (bars * kBar / 0.8 + kBetween)), kNarrowest, kWidest);
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int count) {
  // Values that differ by roundings alone are one, and so are those that are nearly 0.
  const double largest = std::max(std::abs(low), std::abs(high));
  if (!(high - low > 1e-9 * largest) || largest < 1e-300) {
    const double pad = largest < 1e-300 ? 1 : largest * 0.1;
    low -= pad;
    high += pad;
  }
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double share = rough / power;
  const double step = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (int k = 0; first + k <= last; ++k) ticks.push_back((first + k) * step);
  return ticks;
}

double rough_width(const std::string& text, double size, Weight weight) {
  double units = 0;
  for (const char32_t code : decode_utf8(text)) units += width_of(code);
  return (weight == Weight::bold ? 0.62 : 0.58) * size * units;
}

Drawing lay_out(const LineChart& chart, Palette& palette, const Measure& measure) {
  Drawing drawing{.width = 640, .height = 350, .title = chart.title};
  double names = 0;
  for (const Curve& curve : chart.curves) names = std::max(names, measure(curve.name, kName, Weight::bold));
  Frame frame{.left = 46,
              .top = 34,
              .right = drawing.width - std::min(names, 240.0) - 14,
              .bottom = drawing.height - 44,
              .x_scale = chart.x_scale,
              .y_scale = chart.y_scale};
  if (!span(chart, frame)) {
    put_text(drawing, drawing.width / 2, drawing.height / 2, Anchor::middle, "no points");
    return drawing;
  }
  std::vector<double> y_ticks = ticks_between(frame.y_low, frame.y_high, chart.y_scale, 5);
  frame.y_low = scaled(chart.y_scale, y_ticks.front());
  // An axis of logarithms ends at the highest point where the next power would leave much of it empty.
  if (y_ticks.size() > 2 && chart.y_scale != Scale::linear &&
      scaled(chart.y_scale, y_ticks.back()) - frame.y_high > 0.4)
    y_ticks.pop_back();
  frame.y_high = std::max(frame.y_high, scaled(chart.y_scale, y_ticks.back()));
  if (!(frame.x_high > frame.x_low)) {
    frame.x_low -= 0.5;
    frame.x_high += 0.5;
  }
  double gap = 10;
  const std::vector<EndLabel> labels = labels_of(chart, frame);
  if (std::any_of(labels.begin(), labels.end(), [&](const EndLabel& it) { return is_led(it, frame); })) {
    gap = 34;
    frame.right -= gap - 10;
  }
  put_y_axis(drawing, frame, y_ticks, chart.y_label);
  for (const double tick : ticks_between(frame.x_low, frame.x_high, chart.x_scale, 6)) {
    const double at = scaled(chart.x_scale, tick);
    if (at < frame.x_low - 1e-9 || at > frame.x_high + 1e-9) continue;
    put_line(drawing, {frame.x(tick), frame.bottom}, {frame.x(tick), frame.bottom + 4}, Tone::quiet);
    put_text(drawing, frame.x(tick), frame.bottom + 18, Anchor::middle, tick_text(tick));
  }
  put_text(drawing, (frame.left + frame.right) / 2, frame.bottom + 38, Anchor::middle, chart.x_label);
  for (const Curve& curve : chart.curves) put_curve(drawing, curve, frame, palette.index(curve.name));
  put_labels(drawing, chart, frame, gap, palette);
  return drawing;
}

Drawing lay_out(const BarChart& chart, Palette& palette, const Measure& measure,
                const std::string& function) {
  Drawing drawing{.width = bar_chart_width(chart, measure), .height = 350, .title = chart.title};
  double low = 0, high = 0;
  for (const BarSeries& series : chart.series) {
    if (series.values.size() != chart.buckets.size()) {
      throw InvalidArgument(function, chart.title + "." + series.name,
                            std::to_string(chart.buckets.size()) + " values, one for each bucket",
                            std::to_string(series.values.size()));
    }
    for (const double value : series.values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  const std::vector<double> ticks = nice_ticks(low, high > low ? high : low + 1, 5);
  Frame frame{.left = 46, .top = 62, .right = drawing.width - 4, .bottom = drawing.height - 46};
  frame.y_low = ticks.front();
  frame.y_high = ticks.back();
  put_y_axis(drawing, frame, ticks, chart.y_label);
  double key = frame.left;
  for (const BarSeries& series : chart.series) {
    const Paint paint{Series{palette.index(series.name)}};
    drawing.items.push_back(
        Rectangle{.x = key, .y = 5, .width = 13, .height = 13, .fill = paint, .radius = 2});
    drawing.items.push_back(Text{.x = key + kSwatch,
                                 .y = 16,
                                 .text = series.name,
                                 .size = kName,
                                 .paint = paint,
                                 .weight = Weight::bold});
    key += kSwatch + measure(series.name, kName, Weight::bold) + kGap;
  }
  const double group =
      (frame.right - frame.left) / static_cast<double>(std::max<std::size_t>(1, chart.buckets.size()));
  const Bars bars{
      chart, frame, group,
      std::min(72.0, 0.8 * group / static_cast<double>(std::max<std::size_t>(1, chart.series.size())))};
  for (std::size_t b = 0; b < chart.buckets.size(); ++b) {
    put_text(drawing, frame.left + (static_cast<double>(b) + 0.5) * group, frame.bottom + 19, Anchor::middle,
             chart.buckets[b]);
    for (std::size_t s = 0; s < chart.series.size(); ++s)
      put_bar(drawing, bars, b, s, palette.index(chart.series[s].name));
  }
  put_text(drawing, (frame.left + frame.right) / 2, frame.bottom + 40, Anchor::middle, chart.x_label);
  return drawing;
}

}  // namespace fovea::inspect
