// Words joined by arcs: two columns, an arc as wide as its weight, in the colour of its head.
#pragma once

#include <string>
#include <vector>

#include "fovea/inspect/data.h"
#include "fovea/inspect/drawing.h"
#include "fovea/inspect/graph.h"

namespace fovea::pictures {

struct GraphOptions {
  std::string title = {};
  std::vector<int> heads = {};                  ///< from 0; empty: all
  std::vector<inspect::PickedWord> words = {};  ///< a panel for each; empty: one panel with all arcs
};

/// Each map is one line of panels. For a selected word only its arcs are drawn. Each word at their other ends
/// has the colour of its mean weight over the heads as background. Beside it stands that weight as a bar,
/// divided into the heads' parts. Throws InvalidArgument without a map, if a map's sizes disagree, or for a
/// head or a word that a map lacks.
inspect::Drawing draw_graph(const std::vector<inspect::AttentionMap>& maps, const GraphOptions& options = {});

}  // namespace fovea::pictures
