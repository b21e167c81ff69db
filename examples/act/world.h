// A table seen from above with a gripper and coloured objects, the instructions for the gripper, and a
// planner that carries them out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/text/words.h"
#include "shapes.h"

/// One step. The gripper moves above all objects; grab lifts the one under it, push lowers it and moves the
/// one that lies in the direction that follows.
enum class Action : std::int8_t { left, right, up, down, grab, push };
inline constexpr std::array<const char*, 6> kActions{"left", "right", "up", "down", "grab", "push"};

struct Cell {
  int x = 0, y = 0;
  bool operator==(const Cell&) const = default;
};

struct Object {
  int shape = 0, colour = 0;  ///< into gallery::kShapes, gallery::kColours
  Cell at;
  bool operator==(const Object&) const = default;
};

struct World {
  static constexpr int kSide = 6;  ///< cells
  Cell gripper;
  std::vector<Object> objects;
  bool free(Cell cell) const;  ///< on the table, and no object there
};

enum class Verb : std::int8_t { go_to, pick_up, push_left, push_right, push_up, push_down };
inline constexpr int kVerbs = 6;

/// A world and an instruction about one object. No other object has both its shape and its colour.
struct Episode {
  World world;
  Verb verb = Verb::go_to;
  std::size_t object = 0;  ///< into world.objects
  std::vector<Action> plan;
  gallery::Image image;
};

/// Carries out `actions` in `world`. At the first impossible one it stops, leaves the world as it is then,
/// and returns false. Impossible are a move over the edge of the table, a grab at nothing, and a push of
/// nothing or without room.
bool execute(World& world, const std::vector<Action>& actions);
/// Whether the goal is reached and nothing else has changed.
bool succeeds(const Episode& episode, const std::vector<Action>& actions);
/// Finds the shortest plan, with moves to the side before those up and down. False if there is none: no room
/// to push, or to push from.
bool plan(Episode& episode);

/// Some triples of verb, colour and shape occur in `test` alone.
enum class Part { train, test };

class Episodes {
 public:
  static constexpr int kColours = 6, kShapes = 4;  ///< of objects; the gripper is a white cross
  static constexpr int kPixels = 8;                ///< a side of a cell

  /// Another seed has other triples held out.
  explicit Episodes(std::uint64_t seed) : seed_(seed) {}
  /// Episode `index` of its part: the object of the instruction and others, `objects` in all, at most three.
  Episode make(Part part, std::uint64_t index, int objects) const;
  bool unseen(Verb verb, const Object& object) const;

 private:
  std::uint64_t seed_;
};

const fovea::text::Vocabulary& words();
/// "push the red circle left", as ids.
std::vector<std::int32_t> instruction(const Episode& episode);
