#include "scenes.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

using gallery::kColours;
using gallery::kShapes;
using gallery::Sprite;

namespace {

// Objects do not touch, and neither their order from left to right nor their relation depends on a pixel or
// two.
bool clear(const std::vector<Sprite>& objects) {
  for (std::size_t i = 0; i < objects.size(); ++i) {
    for (std::size_t j = i + 1; j < objects.size(); ++j) {
      const double across = std::abs(objects[i].x - objects[j].x);
      const double down = std::abs(objects[i].y - objects[j].y);
      const double apart = objects[i].radius + objects[j].radius + 1.0;
      if (across < 5.0 || std::max(across, down) < apart || std::abs(across - down) < 6.0) return false;
    }
  }
  return true;
}

std::string relation(const Sprite& left, const Sprite& right) {
  if (right.x - left.x > std::abs(right.y - left.y)) return "left of";
  return left.y < right.y ? "above" : "below";
}

// "a small red circle above a large blue square and left of a small green ring": from left to right. Each
// object after the first is preceded by the relation of the first to it.
std::vector<std::string> describe(const std::vector<Sprite>& objects) {
  std::vector<std::string> text;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (i > 1) text.emplace_back("and");
    if (i > 0) {
      const std::string how = relation(objects[0], objects[i]);
      text.push_back(how.substr(0, how.find(' ')));
      if (how == "left of") text.emplace_back("of");
    }
    text.emplace_back("a");
    text.emplace_back(objects[i].radius < 8.0 ? "small" : "large");
    text.emplace_back(kColours[static_cast<std::size_t>(objects[i].colour)]);
    text.emplace_back(kShapes[static_cast<std::size_t>(objects[i].shape)]);
  }
  return text;
}

}  // namespace

bool Scenes::unseen(const Sprite& object) const {
  // One colour for each shape, and no colour for more than one shape.
  const auto place =
      static_cast<std::uint64_t>(object.colour + static_cast<int>(kColours.size()) - object.shape);
  return (place + seed_) % kColours.size() == 0;
}

Sprite Scenes::draw_object(bool from_unseen, fovea::PhiloxStream& random) const {
  Sprite object;
  do {
    object.shape = static_cast<int>(random.next_below(kShapes.size()));
    object.colour = static_cast<int>(random.next_below(kColours.size()));
  } while (unseen(object) != from_unseen);
  object.radius = (random.next_below(2) ? 9.0 : 6.0) + random.next_uniform();
  return object;
}

Scene Scenes::make(Part part, std::uint64_t index, int count) const {
  fovea::PhiloxStream random((seed_ * 2 + static_cast<std::uint64_t>(part)) << 40 | index);
  Scene scene;
  const int held_out = static_cast<int>(random.next_below(static_cast<std::uint32_t>(count)));
  for (int i = 0; i < count; ++i)
    scene.objects.push_back(draw_object(part == Part::test && i == held_out, random));
  do {
    for (Sprite& object : scene.objects) {
      const double room = kSide - 2.0 * object.radius;
      object.x = object.radius + room * random.next_uniform();
      object.y = object.radius + room * random.next_uniform();
    }
  } while (!clear(scene.objects));
  std::sort(scene.objects.begin(), scene.objects.end(),
            [](const Sprite& a, const Sprite& b) { return a.x < b.x; });
  scene.image = gallery::draw(kSide, scene.objects, {}, random);
  scene.caption = describe(scene.objects);
  return scene;
}

const fovea::text::Vocabulary& words() {
  static const fovea::text::Vocabulary all = [] {
    std::vector<std::string> words{"a", "small", "large", "above", "below", "left", "of", "and"};
    words.insert(words.end(), kColours.begin(), kColours.end());
    words.insert(words.end(), kShapes.begin(), kShapes.end());
    return fovea::text::Vocabulary::of_words(words);
  }();
  return all;
}

std::vector<std::int32_t> ids_of(const std::vector<std::string>& caption) {
  std::vector<std::int32_t> ids;
  for (const std::string& word : caption) ids.push_back(words().id_of(word));
  return ids;
}

std::vector<std::size_t> nouns_in(const std::vector<std::int32_t>& ids) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::find(kShapes.begin(), kShapes.end(), words().piece(ids[i])) != kShapes.end())
      places.push_back(i);
  }
  return places;
}
