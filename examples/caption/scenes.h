// Scenes of two or three coloured shapes, each with the sentence that describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/text/vocabulary.h"
#include "shapes.h"

/// Whose scenes: a pair of colour and shape belongs to one of them, and a scene of `valid` or `test` holds at
/// least one of theirs, which no other scenes hold.
enum class Part { train, valid, test };

struct Scene {
  std::vector<gallery::Sprite> objects;  ///< from left to right, as the sentence names them
  gallery::Image image;
  std::vector<std::string> caption;  ///< a function of `objects`
};

class Scenes {
 public:
  static constexpr int kSide = 48;

  /// Another seed has other pairs held out.
  explicit Scenes(std::uint64_t seed) : seed_(seed) {}

  /// Scene `index` of its part, with `objects` objects.
  Scene make(Part part, std::uint64_t index, int objects) const;
  Part part_of(const gallery::Sprite& object) const;

 private:
  gallery::Sprite draw_object(Part part, fovea::PhiloxStream& random) const;
  std::uint64_t seed_;
};

/// All words of the sentences.
const fovea::text::Vocabulary& words();
std::vector<std::int32_t> ids_of(const std::vector<std::string>& caption);
std::string sentence_of(const std::vector<std::int32_t>& ids);
/// Where in the sentence the nouns are.
std::vector<std::size_t> nouns_in(const std::vector<std::int32_t>& ids);
