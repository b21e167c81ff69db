// Scenes of two or three coloured shapes, each with the sentence that describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/text/words.h"
#include "shapes.h"

/// Some pairs of colour and shape occur in no scene of `train`. Every scene of `test` has at least one of
/// them.
enum class Part { train, test };

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
  /// Whether the object's pair of colour and shape is held out.
  bool unseen(const gallery::Sprite& object) const;

 private:
  gallery::Sprite draw_object(bool unseen, fovea::PhiloxStream& random) const;
  std::uint64_t seed_;
};

/// All words of the sentences.
const fovea::text::Vocabulary& words();
std::vector<std::int32_t> ids_of(const std::vector<std::string>& caption);
/// The positions of the nouns in the sentence.
std::vector<std::size_t> nouns_in(const std::vector<std::int32_t>& ids);
