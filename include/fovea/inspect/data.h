// Attention weights with their labels, as plain data. train and the command fill these structs; everything
// that draws reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::inspect {

/// The weights of one attention layer, every head of it.
struct AttentionMap {
  std::string name;                       ///< "encoder.self layer 1"
  int layer = 0;                          ///< counted from 0
  std::vector<std::string> query_tokens;  ///< one for each row: who looks
  std::vector<std::string> key_tokens;    ///< one for each column: what is looked at
  int heads = 1;
  std::vector<float> weights;  ///< [heads, rows, columns]; NaN and infinity are shown as such

  std::size_t rows() const noexcept { return query_tokens.size(); }
  std::size_t columns() const noexcept { return key_tokens.size(); }
};

/// Which source word a target word was translated from: one matrix, words against words.
struct AlignmentMatrix {
  std::vector<std::string> target_tokens;  ///< one for each row
  std::vector<std::string> source_tokens;  ///< one for each column
  std::vector<float> weights;              ///< [rows, columns]

  std::size_t rows() const noexcept { return target_tokens.size(); }
  std::size_t columns() const noexcept { return source_tokens.size(); }
};

/// The attention of one model for one sentence.
struct InspectPage {
  std::string title;
  std::string source = {};  ///< the sentence that was read; may be empty
  std::string output = {};  ///< the sentence that was written; may be empty
  std::vector<std::pair<std::string, std::string>> facts =
      {};                               ///< {"model", "transformer-tiny"}, {"beam size", "4"}
  std::vector<AttentionMap> maps = {};  ///< shown in this order
};

/// Throws InvalidArgument, in the name of `function`, unless weights.size() == heads * rows * columns.
void check(const AttentionMap& map, const std::string& function);
void check(const AlignmentMatrix& alignment, const std::string& function);

/// The matrix of one head, counted from 0. Throws InvalidArgument for a head that the map lacks, and as
/// `check`.
AlignmentMatrix head_of(const AttentionMap& map, int head);

/// The mean over the heads; a NaN in any head stays a NaN. Throws as `check`.
AlignmentMatrix mean_over_heads(const AttentionMap& map);

/// The weights of query `query` of entry `entry` on the first `keys` keys, averaged over the heads. `weights`
/// is [B, heads, Lq, Lk], f32, as attention returns them. Throws InvalidArgument for an index out of range.
std::vector<float> attended_by(ConstTensorView weights, std::int64_t entry, std::int64_t query,
                               std::int64_t keys);

/// Tokens side by side that are one word: of token i the number of its word, from 0 and without gaps.
struct TokenGroups {
  std::vector<std::size_t> of;
  std::vector<std::string> labels;  ///< of each word
};
/// The same map over words: the weight on a word is the sum over its tokens, and that of a word the mean over
/// them. Throws InvalidArgument if the groups are not those of the map's tokens.
AttentionMap merge_tokens(const AttentionMap& map, const TokenGroups& queries, const TokenGroups& keys);

/// The map as JSON: {"name", "layer", "heads", "queries": [...], "keys": [...], "weights":
/// [head][query][key]}. NaN and infinity become null.
std::string to_json(const AttentionMap& map);

/// An alignment as a map of one head, for use in an InspectPage.
AttentionMap as_map(const AlignmentMatrix& alignment, std::string name = "alignment");

}  // namespace fovea::inspect
