// What rows of translators have in common.
#pragma once

#include <vector>

#include "models/family/row.h"

namespace fovea::models {

/// Labels of a text, and answers. They read the rows of the decoder, labels the one at the end of the text.
std::vector<HeadRow> translator_heads();

}  // namespace fovea::models
