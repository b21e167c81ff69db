// The output layer for the candidates of each sentence of a search.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fovea/models/sequence_to_sequence.h"
#include "fovea/models/shortlist.h"

namespace fovea::models {

/// Copies of the rows of the output layer that each sentence needs, in the order of their ids. A row of the
/// result depends on its own sentence alone, and has the same bits in any batch.
class ShortOutputs {
 public:
  /// Candidates are those of the short-list and the end. Those in `never` are not chosen. Throws
  /// InvalidArgument for a short-list of another vocabulary and for a sentence without candidates. Also for a
  /// model that was read packed from a file where the rows of its output layer do not lie in order.
  ShortOutputs(SequenceToSequence& model, const Shortlist& shortlist,
               const std::vector<std::vector<std::int32_t>>& sources, std::int32_t end,
               std::span<const std::int32_t> never);
  /// For each row of `hidden` [rows, dim] the `count` most probable candidates of its sentence, or all of
  /// them if they are fewer. Probabilities are those among the candidates. Rows of a sentence stand together.
  std::vector<std::vector<autograd::Probable>> most_probable(
      const Tensor& hidden, std::size_t count, const std::function<std::size_t(std::size_t row)>& sentence_of,
      autograd::LogProbabilities numbers = autograd::LogProbabilities::given);

 private:
  struct Output {
    std::vector<std::int32_t> ids, never;  // never: indices of ids that may not be chosen
    Tensor weight, bias;                   // [ids, dim], [ids]
  };
  std::vector<Output> outputs_;
};

}  // namespace fovea::models
