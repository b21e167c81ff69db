#include "world.h"

#include <algorithm>
#include <unordered_map>

namespace {

Cell step(Cell from, Action direction) {
  constexpr std::array<Cell, 4> steps{{{-1, 0}, {1, 0}, {0, -1}, {0, 1}}};
  const Cell by = steps.at(static_cast<std::size_t>(direction));
  return {from.x + by.x, from.y + by.y};
}

bool inside(Cell cell) {
  return cell.x >= 0 && cell.y >= 0 && cell.x < World::kSide && cell.y < World::kSide;
}

bool is_direction(Action action) {
  return action < Action::grab;
}

bool is_push(Verb verb) {
  return verb >= Verb::push_left;
}

Action direction_of(Verb verb) {
  return static_cast<Action>(static_cast<int>(verb) - static_cast<int>(Verb::push_left));
}

std::vector<Object>::iterator object_at(World& world, Cell cell) {
  return std::find_if(world.objects.begin(), world.objects.end(),
                      [&](const Object& object) { return object.at == cell; });
}

bool push(World& world, Action direction) {
  const Cell ahead = step(world.gripper, direction), behind = step(ahead, direction);
  const auto object = object_at(world, ahead);
  if (object == world.objects.end() || !world.free(behind)) return false;
  object->at = behind;
  world.gripper = ahead;
  return true;
}

}  // namespace

bool World::free(Cell cell) const {
  return inside(cell) && std::none_of(objects.begin(), objects.end(),
                                      [&](const Object& object) { return object.at == cell; });
}

bool execute(World& world, const std::vector<Action>& actions) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (is_direction(actions[i])) {
      const Cell ahead = step(world.gripper, actions[i]);
      if (!inside(ahead)) return false;
      world.gripper = ahead;
    } else if (actions[i] == Action::grab) {
      const auto object = object_at(world, world.gripper);
      if (object == world.objects.end()) return false;
      world.objects.erase(object);
    } else {
      if (++i == actions.size() || !is_direction(actions[i]) || !push(world, actions[i])) return false;
    }
  }
  return true;
}

bool succeeds(const Episode& episode, const std::vector<Action>& actions) {
  World after = episode.world;
  if (!execute(after, actions)) return false;
  std::vector<Object> wanted = episode.world.objects;
  Object& target = wanted[episode.object];
  if (episode.verb == Verb::go_to) return after.gripper == target.at && after.objects == wanted;
  if (is_push(episode.verb)) {
    target.at = step(target.at, direction_of(episode.verb));
  } else {
    wanted.erase(wanted.begin() + static_cast<std::ptrdiff_t>(episode.object));
  }
  return after.objects == wanted;
}

bool plan(Episode& episode) {
  const Cell object = episode.world.objects[episode.object].at;
  Cell goal = object;
  std::vector<Action> last;
  if (episode.verb == Verb::pick_up) last = {Action::grab};
  if (is_push(episode.verb)) {
    const Action direction = direction_of(episode.verb);
    const Cell behind = step(object, direction);
    goal = {2 * object.x - behind.x, 2 * object.y - behind.y};
    if (!inside(goal) || !episode.world.free(behind)) return false;
    last = {Action::push, direction};
  }
  const int right = goal.x - episode.world.gripper.x, down = goal.y - episode.world.gripper.y;
  const auto times = [](int count) { return static_cast<std::size_t>(std::abs(count)); };
  episode.plan.assign(times(right), right > 0 ? Action::right : Action::left);
  episode.plan.insert(episode.plan.end(), times(down), down > 0 ? Action::down : Action::up);
  episode.plan.insert(episode.plan.end(), last.begin(), last.end());
  return true;
}

bool Episodes::unseen(Verb verb, const Object& object) const {
  // For every pair of colour and shape, one verb of six is held out.
  return (static_cast<std::uint64_t>(static_cast<int>(verb) + object.colour + object.shape) + seed_) %
             kVerbs ==
         0;
}

namespace {

// The object of the instruction, another of its colour and another of its shape: neither word alone says
// which is meant.
std::vector<Object> draw_objects(fovea::PhiloxStream& random) {
  const auto below = [&](int bound) {
    return static_cast<int>(random.next_below(static_cast<std::uint32_t>(bound)));
  };
  constexpr int colours = Episodes::kColours, shapes = Episodes::kShapes;
  const int shape = below(shapes), colour = below(colours);
  const int other_shape = (shape + 1 + below(shapes - 1)) % shapes;
  const int other_colour = (colour + 1 + below(colours - 1)) % colours;
  return {{shape, colour, {}}, {other_shape, colour, {}}, {shape, other_colour, {}}};
}

gallery::Image picture_of(const World& world, fovea::PhiloxStream& random) {
  std::vector<gallery::Sprite> sprites;
  const auto add = [&](int shape, int colour, Cell at) {
    const auto middle = [&](int cell) {
      return (cell + 0.5) * Episodes::kPixels + random.next_uniform() - 0.5;
    };
    const double x = middle(at.x), y = middle(at.y);
    sprites.push_back(
        {.shape = shape, .colour = colour, .x = x, .y = y, .radius = 3.0 + 0.8 * random.next_uniform()});
  };
  for (const Object& object : world.objects) add(object.shape, object.colour, object.at);
  add(4, 6, world.gripper);
  return gallery::draw(World::kSide * Episodes::kPixels, sprites, {}, random);
}

}  // namespace

Episode Episodes::make(Part part, std::uint64_t index, int objects) const {
  fovea::PhiloxStream random((seed_ * 2 + static_cast<std::uint64_t>(part)) << 40 | index);
  for (;;) {
    Episode episode;
    episode.verb = static_cast<Verb>(random.next_below(kVerbs));
    World& world = episode.world;
    world.objects = draw_objects(random);
    world.objects.resize(static_cast<std::size_t>(objects));
    const Object told = world.objects[0];
    if (unseen(episode.verb, told) != (part == Part::test)) continue;
    std::vector<Cell> taken;
    const auto place = [&] {
      Cell cell;
      do {
        cell = {static_cast<int>(random.next_below(World::kSide)),
                static_cast<int>(random.next_below(World::kSide))};
      } while (std::find(taken.begin(), taken.end(), cell) != taken.end());
      taken.push_back(cell);
      return cell;
    };
    for (Object& object : world.objects) object.at = place();
    world.gripper = place();
    if (!plan(episode)) continue;
    episode.image = picture_of(world, random);
    return episode;
  }
}

const fovea::text::Vocabulary& words() {
  static const fovea::text::Vocabulary all = [] {
    std::vector<std::string> words{"go", "to", "pick", "up", "push", "the", "left", "right", "down"};
    words.insert(words.end(), gallery::kColours.begin(), gallery::kColours.begin() + Episodes::kColours);
    words.insert(words.end(), gallery::kShapes.begin(), gallery::kShapes.begin() + Episodes::kShapes);
    return fovea::text::Vocabulary::of_words(words);
  }();
  return all;
}

std::vector<std::int32_t> instruction(const Episode& episode) {
  const Object& object = episode.world.objects[episode.object];
  std::vector<std::string> text{"push"};
  if (episode.verb == Verb::go_to) text = {"go", "to"};
  if (episode.verb == Verb::pick_up) text = {"pick", "up"};
  text.emplace_back("the");
  text.emplace_back(gallery::kColours.at(static_cast<std::size_t>(object.colour)));
  text.emplace_back(gallery::kShapes.at(static_cast<std::size_t>(object.shape)));
  if (is_push(episode.verb))
    text.emplace_back(kActions.at(static_cast<std::size_t>(direction_of(episode.verb))));
  std::vector<std::int32_t> ids;
  for (const std::string& word : text) ids.push_back(words().id_of(word));
  return ids;
}
