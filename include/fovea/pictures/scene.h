// Images with overlays: a grid of attention weights, boxes around places, a caption.
#pragma once

#include <string>
#include <vector>

#include "fovea/inspect/colour_map.h"
#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

using inspect::Rgb;

/// A rectangle in image pixels, drawn as an outline with its label beside it.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  std::string label;
  Rgb colour{213, 94, 0};
};

/// One image and its overlays.
struct Scene {
  std::string caption;  ///< under the image, wrapped to its width
  int width = 0, height = 0;
  std::vector<float> pixels;  ///< [height, width] grey or [height, width, 3] colour, in [0, 1], clamped
  /// [rows, columns] weights, or empty. The image is divided into rows × columns equal rectangles, and a
  /// strong colour is drawn over each. The opacity is proportional to the weight: 70 % for the scene's
  /// largest.
  int rows = 0, columns = 0;
  std::vector<float> weights;
  std::vector<Box> boxes;
};

struct SceneOptions {
  std::string title;
  int columns = 4;  ///< scenes in each line
  /// Units (1/96 inch) for each image pixel, at most 1000. 0: chosen so that an image is about 120 units
  /// wide.
  double zoom = 0;
};

/// Draws the scenes in lines, in order. Each is a panel whose `cell` is the zoom. NaN pixels have
/// not_finite_colour. Throws InvalidArgument for sizes that disagree.
inspect::Drawing draw_scenes(const std::vector<Scene>& scenes, const SceneOptions& options = {});

}  // namespace fovea::pictures
