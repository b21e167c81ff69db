// Text with the weight of each word as its background colour, which shows where a model looks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

struct MarkedText {
  std::string caption;  ///< above the words, such as the question and the answer
  std::vector<std::string> words;
  std::vector<float> weights;  ///< one for each word; the largest of the text has the strongest colour
  std::optional<std::size_t> who = {};  ///< the word that looks, framed; none: the query is not in the text
};

struct MarkedTextOptions {
  std::string title;
  int width = 600;  ///< units (1/96 inch); lines are broken so that words fit
};

/// Draws the texts one under the other, in order. Under each word with a tenth of the weight or more stands
/// its share in hundredths. Throws InvalidArgument unless a text has one weight for each word and its `who`
/// is one of its words, and for a width below 100.
inspect::Drawing draw_marked_texts(const std::vector<MarkedText>& texts,
                                   const MarkedTextOptions& options = {});

}  // namespace fovea::pictures
