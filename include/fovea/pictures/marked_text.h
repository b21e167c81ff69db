// Text whose words stand on the colour of their weight: where a model looks, as one reads it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

struct MarkedText {
  std::string caption;  ///< above the words: what was asked, what came out
  std::vector<std::string> words;
  std::vector<float> weights;           ///< one a word; the largest of the text is the strongest colour
  std::optional<std::size_t> who = {};  ///< the word that looks, framed; none: somebody outside the text
};

struct MarkedTextOptions {
  std::string title;
  int width = 600;  ///< units (1/96 inch); lines are broken so that words fit
};

/// Texts one under the other, in order; under each word that has a tenth of the weight or more, its share in
/// hundredths. Throws InvalidArgument for a text whose weights are not one a word or whose `who` is none of
/// them, or a width below 100.
inspect::Drawing draw_marked_texts(const std::vector<MarkedText>& texts,
                                   const MarkedTextOptions& options = {});

}  // namespace fovea::pictures
