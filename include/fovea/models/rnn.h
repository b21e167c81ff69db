// Sequence-to-sequence models of recurrent cells. Without attention: Cho et al. 2014 (arXiv 1406.1078),
// Sutskever et al. 2014 (arXiv 1409.3215). With it: Bahdanau et al. 2015 (arXiv 1409.0473), Luong et al. 2015
// (arXiv 1508.04025).
#pragma once

#include "fovea/models/sequence_to_sequence.h"

namespace fovea::models {

enum class RnnAttention : std::uint8_t { none, additive, dot, scaled_dot, general, low_rank };
/// Which state of the decoder is the query. `before`: s_{t-1}, and the step reads the resulting context
/// (Bahdanau). `after`: s_t, and the context joins the output (Luong).
enum class QueryState : std::uint8_t { before, after };
/// The values: the encoder's states, or a learned projection of them.
enum class ValueKind : std::uint8_t { states, projection };

struct RnnConfig {
  std::int64_t vocabulary = 0;
  std::int64_t embedding = 256;
  std::int64_t hidden = 256;  ///< of each encoder direction, of the decoder, and of the alignment model
  autograd::Cell cell = autograd::Cell::gru;
  RnnAttention attention = RnnAttention::additive;
  QueryState query = QueryState::before;
  ValueKind values = ValueKind::states;
  float dropout = 0.0f;
  std::int64_t rank = 32;  ///< of the low-rank bilinear score
};

/// A model with initial values from `seed`.
std::unique_ptr<SequenceToSequence> make_rnn(const RnnConfig& config, std::uint64_t seed);

}  // namespace fovea::models
