// Encoders of other libraries, such as BERT: from ids to one vector for each, and from those to the numbers
// of a head. Models that read from left to right are run so too, where their head is not that of the next id.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/masks.h"
#include "fovea/models/pooling.h"
#include "fovea/nn/transformer.h"

namespace fovea::models {

/// The layers between hidden states and the numbers of a head. Those are labels of a sequence or of each id,
/// the begin and the end of an answer, or the ids of masked places.
struct HeadSpec {
  std::int64_t outputs = 0;  ///< labels, or the vocabulary
  /// The one row of a sequence that the head reads; nothing: every row.
  std::optional<SentencePooling::Kind> pooling = {};
  /// With SentencePooling::Kind::last: such ids at the end of a sequence are passed over.
  std::optional<std::int64_t> pad_id = {};
  /// With SentencePooling::Kind::last: the row is the last one that has this id.
  std::optional<std::int64_t> row_of_id = {};
  /// Before the output matrix.
  struct Dense {
    autograd::Activation activation = autograd::Activation::gelu;
    nn::Linear::Bias bias = nn::Linear::Bias::with;
    std::optional<nn::NormSpec> norm = {};     ///< behind the activation
    std::optional<std::int64_t> outputs = {};  ///< nothing: as many as the rows' elements
  };
  std::optional<Dense> dense = {};
  /// With `pooling` and `dense`: rows are pooled behind the dense layer, and not before it (EuroBERT).
  bool pools_late = false;
  enum class Output : std::uint8_t { tied, own };
  Output output = Output::own;  ///< whether the output matrix is the embeddings' table
  nn::Linear::Bias bias = nn::Linear::Bias::with;
};

/// A decoder behind the encoder, as in BART and T5 with a head. It reads the same sequence moved by one id,
/// and hidden states are its rows.
struct TextDecoderSpec {
  nn::StackSpec stack = {};  ///< every block reads a memory
  /// What stands before the moved sequence; nothing: the last id of the sequence that is not pad_id.
  std::optional<std::int64_t> start_id = {}, pad_id = {};
};

struct TextEncoderSpec {
  std::int64_t vocabulary = 0;
  std::int64_t token_types = 0;  ///< rows of a table of which each row of the input gets one; 0: no table
  std::int64_t task_types = 0;   ///< of a table whose first row is added to each row of the input; 0: none
  nn::StackSpec stack = {};
  Mask mask = Everything{};  ///< what the rows of a sequence see: Causal{} where they see those before them
  float embedding_factor = 1.0f;  ///< of the embeddings as the stack's input
  /// An id that is not counted, as in RoBERTa: it has the row before that of the first position.
  std::optional<std::int64_t> pad_id = {};
  std::optional<TextDecoderSpec> decoder = {};
  std::optional<HeadSpec> head = {};
  std::string embedding_name = "embed_tokens", stack_name = "encoder";  ///< of parameters
};

/// A batch is packed: the rows of all sequences, one after the other, so that no time is spent on padding.
class TextEncoder {
 public:
  /// Parameters: embed_tokens, embed_types, embed_tasks, those of a TransformerStack named "encoder" and of a
  /// decoder named "model.decoder", head.dense, head.norm and head.output. The spec may give embed_tokens and
  /// "encoder" other names. Throws InvalidArgument if the head is tied and its rows are not as wide as the
  /// embeddings, for a pad_id without a row for its position, and what TransformerStack throws.
  TextEncoder(const TextEncoderSpec& spec, nn::ParameterSet::Source source);

  const TextEncoderSpec& spec() const noexcept { return spec_; }
  nn::ParameterSet& parameters() noexcept { return *parameters_; }
  /// The last hidden states, [1, all ids, dim]. `types` has one number for each id of all sequences; without
  /// it all are 0. Throws InvalidArgument for no sequences, an empty one, an id or a type outside its table,
  /// and a sequence that is longer than the positions. Padding inside a sequence is read like any other id.
  /// Where it has no position of its own (spec().pad_id), the ids behind it count on as if it were not there.
  /// `weights`, as in TransformerStack::Call, needs one sequence alone, and gets those of the encoder.
  nn::Var hidden(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
                 std::span<const std::int32_t> types = {},
                 const std::function<Tensor*(std::string_view, std::size_t)>& weights = {}) const;
  /// The rows of `hidden`, which is of these sequences, that the head reads: one for each sequence
  /// [sequences, dim], or all of them [all ids, dim]. With pools_late they are behind the dense layer. Not
  /// recorded. Throws InvalidArgument without a head, for rows of other sequences, and for a sequence without
  /// the id of HeadSpec::row_of_id.
  Tensor head_rows(const nn::Var& hidden, std::span<const std::vector<std::int32_t>> sequences) const;
  /// What the head makes of rows [..., dim]: [rows, outputs]. Not recorded. Throws InvalidArgument without a
  /// head, and for rows of another width.
  Tensor logits(const nn::Var& rows) const;
  /// logits(head_rows(hidden(sequences, types), sequences)).
  Tensor logits(std::span<const std::vector<std::int32_t>> sequences,
                std::span<const std::int32_t> types = {}) const;

 private:
  void check_head() const;
  std::int64_t rows_read(std::span<const std::int32_t> ids) const;
  nn::Var decode(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
                 std::span<const std::int64_t> starts, const nn::Var& encoded) const;
  nn::Var dense_rows(nn::Context& context, const nn::Var& rows) const;

  TextEncoderSpec spec_;
  std::unique_ptr<nn::ParameterSet> parameters_;
  nn::Embedding embedding_, types_, tasks_;
  nn::TransformerStack stack_, decoder_;
  nn::Linear dense_;
  std::optional<nn::Norm> norm_;
  nn::Parameter *output_ = nullptr, *output_bias_ = nullptr;
};

}  // namespace fovea::models
