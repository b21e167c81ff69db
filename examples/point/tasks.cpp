#include "tasks.h"

#include <algorithm>
#include <numeric>

namespace point {
namespace {

// Twice the area of the triangle a, b, c: positive where c lies to the left of a -> b. In double, because
// near a line the two products are almost equal.
double turn(const Place& a, const Place& b, const Place& c) {
  return (double{b.x} - a.x) * (double{c.y} - a.y) - (double{b.y} - a.y) * (double{c.x} - a.x);
}

std::vector<std::int32_t> left_to_right(const std::vector<Place>& places) {
  std::vector<std::int32_t> order(places.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return places[a].x != places[b].x ? places[a].x < places[b].x : places[a].y < places[b].y;
  });
  return order;
}

// Andrew's monotone chain: the lower side from left to right, then the upper side back.
std::vector<std::int32_t> convex_hull(const std::vector<Place>& places) {
  std::vector<std::int32_t> order = left_to_right(places), hull;
  for (int side = 0; side < 2; ++side) {
    const std::size_t start = hull.size();
    for (const std::int32_t i : order) {
      while (hull.size() >= start + 2 &&
             turn(places[hull[hull.size() - 2]], places[hull.back()], places[i]) <= 0)
        hull.pop_back();
      hull.push_back(i);
    }
    hull.pop_back();
    std::reverse(order.begin(), order.end());
  }
  return hull;
}

}  // namespace

std::vector<std::int32_t> answer_of(Task task, const std::vector<Place>& places) {
  return task == Task::hull ? convex_hull(places) : left_to_right(places);
}

Sets draw_sets(Task task, std::int64_t size, std::int64_t points, fovea::PhiloxStream& random) {
  Sets sets{.size = size, .points = points};
  sets.features = fovea::Tensor::zeros(fovea::DType::f32, {size, points + 1, 3});
  // Mean 0 and variance 1, as is usual for the input of a layer. The variance of a uniform draw is 1/12.
  const auto feature_of = [](float drawn) { return (drawn - 0.5f) * 3.4641f; };
  float* feature = sets.features.data<float>();
  std::vector<std::vector<std::int32_t>> answers;
  for (std::int64_t b = 0; b < size; ++b) {
    std::vector<Place> places(static_cast<std::size_t>(points));
    feature[2] = 1;
    feature += 3;
    for (Place& place : places) {
      place.x = random.next_uniform();
      feature[0] = feature_of(place.x);
      if (task == Task::hull) {
        place.y = random.next_uniform();
        feature[1] = feature_of(place.y);
      }
      feature += 3;
    }
    answers.push_back(answer_of(task, places));
    sets.steps = std::max(sets.steps, static_cast<std::int64_t>(answers.back().size()) + 1);
    sets.places.push_back(std::move(places));
  }
  for (const auto& answer : answers) {
    const std::size_t begin = sets.targets.size();
    for (const std::int32_t i : answer) sets.targets.push_back(i + 1);
    sets.targets.push_back(0);
    sets.targets.resize(begin + static_cast<std::size_t>(sets.steps), -1);
  }
  return sets;
}

bool is_exact(Task task, const Sets& sets, std::int64_t entry, const std::vector<std::int32_t>& rows) {
  const auto* begin = sets.targets.data() + entry * sets.steps;
  std::vector<std::int32_t> target(begin, std::find(begin, begin + sets.steps, 0));
  if (rows.size() != target.size()) return false;
  if (task == Task::hull)
    std::rotate(target.begin(), std::find(target.begin(), target.end(), rows.front()), target.end());
  return rows == target;
}

}  // namespace point
