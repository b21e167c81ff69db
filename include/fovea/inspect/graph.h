// A map as a graph of words: queries on one side, keys on the other, and an arc for each head's weight
// between them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/inspect/data.h"
#include "fovea/inspect/terminal.h"

namespace fovea::inspect {

enum class Side { query, key };

/// A selected word: the tokens [first, first + count) of one side. A word that is split into pieces has
/// several.
struct PickedWord {
  Side side = Side::query;
  std::size_t first = 0, count = 1;
  friend bool operator==(const PickedWord&, const PickedWord&) = default;
};

/// All occurrences of `word` among the queries, or, if there is none, among the keys. A token is compared
/// without the marks of sub-words (a leading "▁" or "##", a trailing "@@"). Consecutive pieces that together
/// spell the word are one occurrence.
std::vector<PickedWord> find_word(const AttentionMap& map, std::string_view word);

/// The word's own text, its pieces joined and without their marks.
std::string text_of(const AttentionMap& map, const PickedWord& word);

/// `heads`, or, if it is empty, all heads of the map; counted from 0.
std::vector<int> heads_or_all(const AttentionMap& map, const std::vector<int>& heads);

struct Arc {
  std::size_t query = 0, key = 0;
  int head = 0;
  float weight = 0;
};

/// The arcs of `heads` (from 0; empty: all) with a weight of at least `least`. With a word, only arcs whose
/// query or key is one of its tokens. The weakest come first, so that strong ones are drawn on top. Weights
/// that are not finite have no arc. Throws InvalidArgument if the map's sizes disagree, or for a head or a
/// word that the map lacks.
std::vector<Arc> arcs_of(const AttentionMap& map, const std::vector<int>& heads, const PickedWord* word,
                         float least = 0.02F);

/// The weights between a selected word and each token of the other side, by head: [heads, tokens]. For a
/// query they are averaged over the word's pieces, for a key summed. Throws as arcs_of does.
std::vector<float> shares_of(const AttentionMap& map, const std::vector<int>& heads, const PickedWord& word);

/// The graph in a terminal: two columns of words and strokes between them, made of braille dots, or of ASCII
/// characters where the terminal has no Unicode. A stroke is as wide as the mean weight over the heads,
/// dotted below 0.1, and has the colour of the head with the largest part. A selected word stands in
/// brackets. It has a stroke to each word of the other side with a mean weight of at least 0.02. The mean and
/// the weight of each head stand beside that word. Without words each query has a stroke to its largest key
/// and to every other key of at least 0.25. Its largest weight stands beside it. Control characters in texts
/// are treated as in draw_terminal. Throws as arcs_of does.
std::string draw_terminal_graph(const AttentionMap& map, const std::vector<int>& heads,
                                const std::vector<PickedWord>& words, const TerminalStyle& style = {});

}  // namespace fovea::inspect
