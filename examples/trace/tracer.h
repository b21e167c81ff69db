// The network of this example, and programs as it reads them.
#pragma once

#include <span>
#include <vector>

#include "fovea/models/encoder.h"
#include "world.h"

namespace trace_example {

/// Programs of equally many lines.
struct Batch {
  std::int64_t size = 0, lines = 0;  ///< programs, lines in each
  fovea::models::Padded words;       ///< of all lines
  fovea::models::Padded messages;
  std::vector<std::int32_t> wrote;
};
Batch batch_of(std::span<const Program> programs, const fovea::text::Vocabulary& vocabulary,
               fovea::PhiloxStream& random);

class Tracer {
 public:
  /// What attends to what besides the pointer: the program's words to the lines above and to the message; not
  /// to the lines above; or not to the message, which is read by itself.
  enum class Reads { all, no_lines_above, no_message };
  Tracer(fovea::nn::ParameterSet& set, std::int64_t vocabulary, Reads reads);
  /// -> [programs, lines]: how likely each line is to have written the message. `weights`, if given, receives
  /// those of the cross-attention, [programs, heads, lines * kLineWords, kLineWords of the message].
  fovea::nn::Var operator()(fovea::nn::Context& context, const Batch& batch,
                            fovea::Tensor* weights = nullptr) const;

 private:
  Reads reads_;
  fovea::nn::Embedding words_;
  fovea::nn::Linear line_;
  fovea::nn::LayerNorm norm_;
  fovea::nn::MultiHeadAttention above_;
  fovea::nn::LayerNorm resolved_norm_;
  fovea::nn::FeedForward hidden_;
  fovea::nn::TransformerStack read_;
  fovea::nn::Linear query_, key_;
};

}  // namespace trace_example
