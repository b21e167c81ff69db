#include "picture.h"

#include <fmt/format.h>

#include <cmath>

#include "fovea/inspect/report.h"
#include "fovea/pictures/scene.h"

namespace point {
namespace {

namespace inspect = fovea::inspect;
namespace pictures = fovea::pictures;
constexpr int kSide = 250, kMargin = 25, kRadius = 7;
constexpr inspect::Rgb kFaint{214, 217, 224}, kStrong{214, 0, 143}, kLine{120, 126, 140};

// A point in pixels of a scene; the point's y grows upwards, as in geometry.
inspect::Point on_canvas(const Place& place) {
  return {kMargin + place.x * (kSide - 2 * kMargin), kSide - kMargin - place.y * (kSide - 2 * kMargin)};
}

void paint_disc(pictures::Scene& scene, const inspect::Point& center, double radius, inspect::Rgb colour) {
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      if (std::hypot(x + 0.5 - center.x, y + 0.5 - center.y) > radius) continue;
      float* pixel = scene.pixels.data() + 3 * (y * kSide + x);
      pixel[0] = static_cast<float>(colour.red) / 255;
      pixel[1] = static_cast<float>(colour.green) / 255;
      pixel[2] = static_cast<float>(colour.blue) / 255;
    }
  }
}

void paint_line(pictures::Scene& scene, const inspect::Point& from, const inspect::Point& to) {
  const int dots = 1 + static_cast<int>(std::hypot(to.x - from.x, to.y - from.y));
  for (int i = 0; i <= dots; ++i) {
    const double t = static_cast<double>(i) / dots;
    paint_disc(scene, {std::lerp(from.x, to.x, t), std::lerp(from.y, to.y, t)}, 1.1, kLine);
  }
}

inspect::Rgb shade(float weight) {
  const auto mix = [&](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + weight * (b - a)));
  };
  return {mix(kFaint.red, kStrong.red), mix(kFaint.green, kStrong.green), mix(kFaint.blue, kStrong.blue)};
}

}  // namespace

inspect::Drawing draw_steps(const Network& network, const Sets& sets) {
  std::vector<fovea::Tensor> weights;
  std::vector<std::int32_t> rows = network.answer(sets, &weights).front();
  rows.push_back(0);
  const std::vector<Place>& places = sets.places.front();
  std::vector<pictures::Scene> scenes;
  for (std::size_t step = 0; step < rows.size() && step < weights.size(); ++step) {
    const float* weight = weights[step].data<float>();
    pictures::Scene scene;
    scene.width = scene.height = kSide;
    scene.pixels.assign(3 * kSide * kSide, 1.0f);
    const auto corner = [&](std::size_t of_step) { return on_canvas(places[rows[of_step] - 1]); };
    for (std::size_t i = 1; i < step; ++i) paint_line(scene, corner(i - 1), corner(i));
    if (rows[step] == 0 && step > 0)
      paint_line(scene, corner(step - 1), corner(0));  // the end closes the hull
    for (std::size_t i = 0; i < places.size(); ++i)
      paint_disc(scene, on_canvas(places[i]), kRadius, shade(weight[i + 1]));
    const auto frame = [&](std::size_t of_step, inspect::Rgb colour) {
      const double half = kRadius + 3;
      scene.boxes.push_back(
          {corner(of_step).x - half, corner(of_step).y - half, 2 * half, 2 * half, "", colour});
    };
    if (step > 0) frame(step - 1, kLine);
    if (rows[step] > 0) frame(step, kStrong);
    // In the caption, because a label beside the point would cover others.
    scene.caption =
        fmt::format("step {}: {}{:.0f} %", step + 1, rows[step] > 0 ? "" : "end, ", 100 * weight[rows[step]]);
    scenes.push_back(std::move(scene));
  }
  return pictures::draw_scenes(
      scenes,
      {.title = "Where the pointer looks, step by step: a hull of 12 points", .columns = 4, .zoom = 0.5});
}

}  // namespace point
