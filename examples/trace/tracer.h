// The network of this example, and the encoding of programs for it.
#pragma once

#include <span>
#include <vector>

#include "fovea/models/encoder.h"
#include "world.h"

namespace trace_example {

/// What the network is given: everything, or all but one of its three sources.
enum class Given { all, no_tree, no_log, no_user };

struct Batch {
  std::int64_t size = 0;            ///< programs
  std::vector<std::int32_t> lines;  ///< words: [size, kLines, kLineWords]
  std::vector<int> parents;         ///< of lines: [size, kLines]
  fovea::models::Padded report;     ///< log, then user
  std::vector<std::int32_t> failed;
};
/// Without the log, or the user, all words of that part of the report are the same and carry no information.
Batch batch_of(std::span<const Program> programs, const fovea::text::Vocabulary& vocabulary, Given given,
               fovea::PhiloxStream& random);

class Tracer {
 public:
  Tracer(fovea::nn::ParameterSet& set, std::int64_t vocabulary, Given given);
  /// -> [programs, kLines]: logits of which line failed. `weights`, if given, receives those of the
  /// cross-attention, [programs, heads, kLines * kParts, 2 * kReportWords].
  fovea::nn::Var operator()(fovea::nn::Context& context, const Batch& batch,
                            fovea::Tensor* weights = nullptr) const;
  /// The parts of a line: its words, and one for the tree.
  static constexpr int kParts = kLineWords + 1;

 private:
  Given given_;
  fovea::nn::Embedding words_;
  fovea::nn::Norm norm_;
  fovea::nn::Linear line_;
  fovea::nn::MultiHeadAttention around_;
  fovea::nn::TransformerStack read_;
  fovea::nn::Linear query_, key_;
};

}  // namespace trace_example
