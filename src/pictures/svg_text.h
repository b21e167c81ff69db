// Adds to Cairo's SVG what it lacks. Private to this directory.
#pragma once

#include <string>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

/// Cairo's SVG with the drawing's title and all its texts as <title> and <desc>, for searching and for screen
/// readers: the text itself is shapes. Ids count from 0; Cairo's count through the whole process.
std::string with_description(const std::string& svg, const inspect::Drawing& drawing);

}  // namespace fovea::pictures
