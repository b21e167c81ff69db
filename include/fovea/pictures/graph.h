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

/// Every map a line of panels. Where a word is picked, only its arcs are drawn, each word at their other ends
/// stands on the colour of its mean weight over the heads, and beside it is that weight as a bar of its
/// heads' parts. Throws InvalidArgument without a map, if a map's sizes disagree, or for a head or a word
/// that a map lacks.
inspect::Drawing draw_graph(const std::vector<inspect::AttentionMap>& maps, const GraphOptions& options = {});

}  // namespace fovea::pictures
