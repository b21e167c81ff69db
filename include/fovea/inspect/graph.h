// A map as a graph of words: who looks, what is looked at, and an arc for each head's weight between them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/inspect/data.h"
#include "fovea/inspect/terminal.h"

namespace fovea::inspect {

enum class Side { query, key };

/// A word picked out: the tokens [first, first + count) of one side, several where it is split into pieces.
struct PickedWord {
  Side side = Side::query;
  std::size_t first = 0, count = 1;
  friend bool operator==(const PickedWord&, const PickedWord&) = default;
};

/// Where `word` stands: among those who look, or, if it is nowhere there, among what is looked at. A token is
/// compared without the marks of sub-words (a leading "▁" or "##", a trailing "@@"); pieces that follow one
/// another and together spell the word are one place.
std::vector<PickedWord> find_word(const AttentionMap& map, std::string_view word);

/// The word's own text, its pieces joined and without their marks.
std::string text_of(const AttentionMap& map, const PickedWord& word);

struct Arc {
  std::size_t query = 0, key = 0;
  int head = 0;
  float weight = 0;
};

/// The arcs of `heads` (from 0; empty: all) of at least `least` whose query or key is one of the picked
/// word's tokens; without a word, all of them. Weakest first, so that drawn in order the strong ones lie on
/// top; not-finite weights are no arcs. Throws InvalidArgument if the map's sizes disagree, or for a head or
/// a word that the map lacks.
std::vector<Arc> arcs_of(const AttentionMap& map, const std::vector<int>& heads, const PickedWord* word,
                         float least = 0.02F);

/// What a picked word gives to each token of the other side (or gets from it), by head: [heads, tokens], the
/// mean over the word's pieces where it looks, the sum where it is looked at. Throws as arcs_of does.
std::vector<float> shares_of(const AttentionMap& map, const std::vector<int>& heads, const PickedWord& word);

/// The graph in a terminal. A picked word: a line for each token of the other side, with a bar of the mean
/// weight, cut into the heads' parts, and every head's own weight. Without words: for each who looks the
/// three it looks at most. Texts are made safe as draw_terminal does. Throws as arcs_of does.
std::string draw_terminal_graph(const AttentionMap& map, const std::vector<int>& heads,
                                const std::vector<PickedWord>& words, const TerminalStyle& style = {});

}  // namespace fovea::inspect
