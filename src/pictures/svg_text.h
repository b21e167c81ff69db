// What Cairo's SVG lacks. Private to the room.
#pragma once

#include <string>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

/// Cairo's SVG with the drawing's title and all its texts as <title> and <desc>, for whoever searches it or
/// has it read aloud (the text itself is shapes), and with ids that count from 0, where Cairo counts on over
/// the whole process.
std::string with_description(const std::string& svg, const inspect::Drawing& drawing);

}  // namespace fovea::pictures
