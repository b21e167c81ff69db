#include "picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace point {
namespace {

using namespace fovea::inspect;

constexpr double kSide = 125, kMargin = 13, kGap = 14, kRadius = 3.5, kCaption = 13, kTitle = 20;
constexpr double kLeft = 16, kTop = 50, kPitch = kSide + kCaption + 22;
constexpr std::size_t kColumns = 4;
constexpr Rgb kPointed{214, 0, 143};

// One step's panel; the y of its places grows upwards, as in geometry.
struct StepPanel {
  double x, y;

  Point at(const Place& place) const {
    return {x + kMargin + place.x * (kSide - 2 * kMargin),
            y + kSide - kMargin - place.y * (kSide - 2 * kMargin)};
  }
};

Rectangle square(const Point& center, double half, const Paint& fill, double radius) {
  return {.x = center.x - half,
          .y = center.y - half,
          .width = 2 * half,
          .height = 2 * half,
          .fill = fill,
          .radius = radius};
}

Path frame(double x, double y, double side, const Paint& stroke) {
  return {.steps = {{Step::Kind::move, {x, y}},
                    {Step::Kind::line, {x + side, y}},
                    {Step::Kind::line, {x + side, y + side}},
                    {Step::Kind::line, {x, y + side}},
                    {Step::Kind::line, {x, y}}},
          .stroke = stroke};
}

void add_frame(Drawing& drawing, const Point& center, const Paint& stroke) {
  const double half = kRadius + 1.5;
  drawing.items.push_back(frame(center.x - half, center.y - half, 2 * half, stroke));
}

}  // namespace

Drawing draw_steps(const Network& network, const Sets& sets) {
  std::vector<fovea::Tensor> weights;
  std::vector<std::int32_t> rows = network.answer(sets, &weights).front();
  rows.push_back(0);
  const std::vector<Place>& places = sets.places.front();
  const std::size_t steps = std::min(rows.size(), weights.size()), lines = (steps + kColumns - 1) / kColumns;
  Drawing drawing{.width = 2 * kLeft + kColumns * kSide + (kColumns - 1) * kGap,
                  .height = kTop + static_cast<double>(lines) * kPitch,
                  .title = "Where the pointer looks: a hull of 12 points"};
  drawing.items.push_back(Text{.x = kLeft,
                               .y = kTop - 18,
                               .text = drawing.title,
                               .size = kTitle,
                               .paint = {Tone::ink},
                               .weight = Weight::bold,
                               .limit = drawing.width - 2 * kLeft});
  for (std::size_t step = 0; step < steps; ++step) {
    const StepPanel panel{kLeft + static_cast<double>(step % kColumns) * (kSide + kGap),
                          kTop + static_cast<double>(step / kColumns) * kPitch};
    const float* weight = weights[step].data<float>();
    const auto corner = [&](std::size_t of_step) { return panel.at(places[rows[of_step] - 1]); };
    drawing.items.push_back(frame(panel.x, panel.y, kSide, {Tone::line}));
    Path hull{.steps = {}, .stroke = {Tone::quiet}};
    for (std::size_t i = 0; i < step; ++i)
      hull.steps.push_back({i == 0 ? Step::Kind::move : Step::Kind::line, corner(i)});
    if (rows[step] == 0 && step > 0)
      hull.steps.push_back({Step::Kind::line, corner(0)});  // the end closes it
    if (hull.steps.size() > 1) drawing.items.push_back(hull);
    for (std::size_t i = 0; i < places.size(); ++i) {
      drawing.items.push_back(square(panel.at(places[i]), kRadius, {Tone::line}, kRadius));
      drawing.items.push_back(square(panel.at(places[i]), kRadius, {kPointed, weight[i + 1]}, kRadius));
    }
    if (step > 0) add_frame(drawing, corner(step - 1), {Tone::quiet});
    if (rows[step] > 0) add_frame(drawing, corner(step), {kPointed});
    // In the caption, because a label beside the point would cover others.
    drawing.items.push_back(Text{.x = panel.x,
                                 .y = panel.y + kSide + kCaption + 4,
                                 .text = fmt::format("step {}: {}{:.0f} %", step + 1,
                                                     rows[step] > 0 ? "" : "end, ", 100 * weight[rows[step]]),
                                 .size = kCaption,
                                 .paint = {Tone::ink}});
  }
  return drawing;
}

}  // namespace point
