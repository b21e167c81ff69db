// Models of other libraries: what a config.json of transformers says, as plain values. One struct holds every
// number and choice in which the families differ, and one stack of blocks (nn/blocks.h) runs all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/rope.h"
#include "fovea/models/pooling.h"
#include "fovea/nn/blocks.h"

namespace fovea::models {

/// What the rows of a layer see of the rows that the kind of model lets them see.
enum class LayerSees : std::uint8_t {
  all,
  window,
  state  ///< what a recurrence keeps of them: the layer has one in the place of attention
};

/// The recurrence of layers with LayerSees::state (nn/recurrent_mixer.h).
enum class FamilyRecurrence : std::uint8_t { none, mamba, mamba2, gated_delta };

enum class FamilyKind : std::uint8_t {
  decoder,    ///< reads from left to right
  encoder,    ///< reads both ways
  translator  ///< an encoder, and a decoder that reads what it makes
};

/// The layers between the last hidden states and the logits.
enum class FamilyHead : std::uint8_t {
  none,
  language,         ///< of the next id: one matrix
  masked,           ///< of the ids at masked places
  sequence_labels,  ///< one label, or several, for a sequence
  token_labels,     ///< one for each id
  answer            ///< for each id whether an answer begins there, and whether it ends there
};

/// The layers of a head, in this order, but for the sizes: the row or rows that it reads, dense, activation
/// and norm where it has them, and one matrix.
struct HeadLayers {
  std::optional<SentencePooling::Kind> pooling = {};  ///< the row of a sequence; nothing: all rows
  bool at_eos = false;      ///< with Kind::last: the last row whose id is the first of FamilyConfig::eos_ids
  bool pools_late = false;  ///< `pooling` stands behind the dense layer: HeadSpec::pools_late
  bool dense = false, dense_bias = true;
  /// Behind `dense`; nothing, where there is one: that of the blocks.
  std::optional<autograd::Activation> activation = {};
  bool norm = false;  ///< the norm of the blocks
  bool bias = true;   ///< of the matrix, also of a translator's
};

/// What makes scores of a head's numbers.
enum class ScoreFunction : std::uint8_t {
  none,
  sigmoid,  ///< each label for itself
  softmax   ///< over all labels
};

/// A model of a family. Sizes of 0 follow from others until read_family has filled them in.
struct FamilyConfig {
  std::string model_type;    ///< the family, such as "llama"
  std::string architecture;  ///< the class that wrote the folder, such as "LlamaForCausalLM"; "" if not named
  FamilyKind kind = FamilyKind::decoder;
  FamilyHead head = FamilyHead::none;

  std::int64_t vocabulary = 0, dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, feed_forward = 0;
  std::int64_t positions = 0;  ///< the longest sequence
  /// Of embeddings that a matrix brings to `dim`; nothing: they have `dim` elements, and there is no matrix.
  std::optional<std::int64_t> embedding_dim = {};
  bool one_block = false;  ///< the weights of one block serve all layers: ALBERT
  /// Of a translator's decoder; the sizes above are its encoder's. 0: as there.
  std::int64_t decoder_layers = 0, decoder_heads = 0, decoder_feed_forward = 0;
  /// Of a translator with a head for labels or answers, whose decoder reads the source moved by one id: what
  /// stands before it. mBART has the last id there that is no padding.
  std::optional<std::int64_t> start_id = {};
  bool starts_with_last = false;
  bool encoder_alone = false;    ///< a translator's encoder without its decoder: T5EncoderModel
  std::int64_t token_types = 0;  ///< rows of the table of token types; 0: there is none
  std::int64_t task_types = 0;   ///< of the table of tasks, of which all ids have the first: ERNIE

  nn::NormSpec::Kind norm = nn::NormSpec::Kind::rms;
  double norm_epsilon = 1e-6;
  float norm_offset = 0.0f;  ///< rows are multiplied by weight + offset
  bool norm_bias = true;     ///< of layer norms
  bool norm_weight = true;   ///< false: rows are only normalised
  nn::NormPlace norm_place = nn::NormPlace::pre;
  bool embedding_norm = false;
  bool first_norm = true;  ///< false: the first block's attention reads rows that no norm has changed

  bool has_feed_forward = true;
  bool side_by_side = false;  ///< nn::BlockSpec::Parts, attention beside the feed-forward part
  bool own_mlp_norm = true;   ///< where they are: whether the feed-forward part has a norm of its own
  bool gated = true;          ///< whether the feed-forward part has a gate
  autograd::Activation activation = autograd::Activation::silu;
  bool query_bias = false, output_bias = false, mlp_bias = false;  ///< query_bias: of q, k and v

  HeadLayers head_layers = {};
  std::vector<std::string> labels;                        ///< of a head with labels, by their number
  ScoreFunction score_function = ScoreFunction::softmax;  ///< of sequence labels
  /// What the config says of the scores of pairs of texts (sentence-transformers' CrossEncoder).
  std::optional<ScoreFunction> pair_score_function = {};

  bool scale_scores = true;            ///< by 1/sqrt(head_dim), or 1/sqrt(query_scalar)
  bool scale_by_layer = false;         ///< also by 1/(layer + 1): GPT-2
  std::optional<double> query_scalar;  ///< in place of head_dim in the scale of scores: Gemma 2
  std::optional<double> score_cap, logit_cap;
  double logit_factor = 1.0;
  bool logit_bias = false;  ///< of a decoder's logits
  bool query_key_norm = false;
  bool norm_of_all_heads = false;  ///< of queries and keys: nn::AttentionOptions::NormOf
  bool attention_gate = false;     ///< nn::AttentionOptions::output_gate
  bool scale_embedding = false;    ///< by sqrt(dim)
  /// Of embeddings, and of what each part adds to the rows: Granite.
  double embedding_factor = 1.0, branch_factor = 1.0;
  std::optional<double> score_factor;  ///< in place of 1/sqrt(head_dim)
  bool scale_output = false;           ///< the rows that logits are made of, by 1/sqrt(dim): T5
  bool tied = true;                    ///< whether the config says that the output matrix is the embedding's
  std::optional<std::int64_t> window;  ///< rows that a layer with LayerSees::window sees, itself included
  std::vector<LayerSees> sees;         ///< one for each layer

  FamilyRecurrence recurrence = FamilyRecurrence::none;
  /// Of the recurrence. A size that it does not have is 0.
  std::int64_t recurrent_inner = 0;  ///< channels of Mamba; elements of all heads of Mamba-2
  std::int64_t recurrent_heads = 0, recurrent_key_heads = 0, recurrent_key_dim = 0, recurrent_value_dim = 0;
  std::int64_t state_dim = 0, state_groups = 0, step_rank = 0, conv_width = 4;
  autograd::Activation conv_activation = autograd::Activation::silu;
  bool conv_bias = true, recurrent_bias = false;  ///< recurrent_bias: of Mamba's outer projections
  std::optional<double> selection_epsilon;        ///< nn::MambaOptions::selection_epsilon
  double least_step = 0.0;
  std::optional<double> most_step;  ///< nothing: any

  bool learned_positions = false, sinusoidal = false;
  /// Of the sines: their wavelengths reach 2π·10000 with the last of them, as in fairseq, not one step behind
  /// it.
  bool whole_wavelengths = false;
  std::int64_t first_position_row = 0;  ///< of the table, or of the sines: RoBERTa leaves rows free
  bool rotary = true;
  Rope rope = {};  ///< rotary_dim is head_dim, or a share of it
  /// What scalings take for the positions of the training, whatever rope_parameters says: Phi-3.
  std::optional<std::int64_t> rope_original = {};
  std::optional<std::int64_t> rotary_elements;  ///< of a head that are rotated; nothing: rotary_share says it
  std::optional<double> rotary_share;  ///< of a head's elements; nothing: all, and configs cannot change it
  std::optional<Rope> window_rope;     ///< of layers with a window, where they differ: Gemma 3
  std::vector<bool> layers_with_rope;  ///< one for each layer; empty: all
  std::int64_t relative_buckets = 0, relative_distance = 128;  ///< of T5's table; 0 buckets: none
  bool relative_of_each_layer = false;  ///< UMT5; false: all layers of a side share one table
  bool alibi = false;                   ///< with the slopes of alibi_slopes, which are not trained

  std::optional<std::int64_t> pad_id;
  std::vector<std::int64_t> eos_ids;
};

/// A key of config.json that keeps a model from being run. `key` names it, with its place in nested objects.
struct ConfigProblem {
  std::string key, expected, got;
};

struct FamilyReading {
  FamilyConfig config;
  /// Every key that is missing, out of range, or unknown. A model with problems is not run: an unknown key
  /// may change what the model computes.
  std::vector<ConfigProblem> problems;
};

/// Reads the text of a config.json in any form that transformers has written since its version 4. Throws
/// InvalidArgument if it is not a JSON object with a model_type.
FamilyReading read_family(const std::string& text);
/// How a model is run: as its kind says. A decoder or a translator with another head than that of the next id
/// is run as an encoder, and so is a translator's encoder alone.
FamilyKind runs_as(const FamilyConfig& config);
/// runs_as of a config.json of a family; nothing for another config.
std::optional<FamilyKind> family_kind(const std::string& text);
/// The model_types that read_family knows, in the order of the table.
std::vector<std::string_view> families();
/// The classes of transformers that write such folders; none for a family that is not known.
std::vector<std::string> family_classes(std::string_view model_type);

/// Whether there is a longest sequence. T5's relative bias and BLOOM's ALiBi have none, nor have models in
/// which no layer attends.
bool positions_end(const FamilyConfig& config);

/// The norms of a model.
nn::NormSpec norm_of(const FamilyConfig& config);
/// The blocks of a model; of a translator those of its encoder. Throws InvalidArgument where the layers do.
nn::StackSpec stack_of(const FamilyConfig& config);
/// Those of a translator's decoder.
nn::StackSpec decoder_stack_of(const FamilyConfig& config);
/// The parsed values as a JSON object.
std::string to_json(const FamilyConfig& config);

}  // namespace fovea::models
