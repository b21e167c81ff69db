// Transformer encoder-decoder (Vaswani et al. 2017, arXiv 1706.03762).
#pragma once

#include "fovea/models/mixers.h"
#include "fovea/models/sequence_to_sequence.h"
#include "fovea/nn/transformer.h"

namespace fovea::models {

using nn::NormPlace;

struct TransformerConfig {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 128;
  std::int64_t feed_forward = 256;
  std::int64_t heads = 4;
  std::int64_t encoder_layers = 4, decoder_layers = 4;
  NormPlace norm = NormPlace::post;
  /// How positions enter. `sinusoidal` adds sines to the embeddings; the others act in self-attention.
  /// `rotary` rotates queries and keys (Su et al. 2021, arXiv 2104.09864). `alibi` is ALiBi with learned
  /// slopes (Press et al. 2022, arXiv 2108.12409), by the absolute distance in the encoder, which sees both
  /// sides. `relative` is T5's relative bias, with one table for all layers of a side (Raffel et al. 2020,
  /// arXiv 1910.10683).
  enum class Positions : std::uint8_t { sinusoidal, rotary, alibi, relative };
  Positions positions = Positions::sinusoidal;
  std::int64_t longest = 1024;  ///< of rotary positions: the number of rows that the table of angles has
  float dropout = 0.1f;
  float attention_dropout = 0.0f;
  /// What mixes the rows of a layer with one another, one for each layer of the side; empty: attention in
  /// all. Cross-attention stays attention. A recurrence of the encoder reads both ways
  /// (nn::BlockSpec::recurrence_sees), one of the decoder from left to right. The sizes are those of
  /// LanguageModelConfig. A list of attention alone is no list in config().
  std::vector<LayerMixer> encoder_mixers = {}, decoder_mixers = {};
};

/// A model with initial values from `seed`. Throws InvalidArgument for a list of mixers that is neither empty
/// nor as long as the layers. Throws it also for a mixer of the encoder that reads from left to right alone,
/// and for what nn::TransformerStack refuses.
std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config, std::uint64_t seed);

/// The layers that a config stands for. The caller may change them: any norm, activation, score, mod or mask.
struct TransformerStacks {
  nn::StackSpec encoder, decoder;
};
TransformerStacks transformer_stacks(const TransformerConfig& config);
/// A model with the caller's own layers; vocabulary and width are those of `config`. A config.json cannot
/// describe such layers, so config() throws and save_model does not work. Save the weights instead
/// (files/safetensors.h), and make the model again before loading them. Throws InvalidArgument for stacks of
/// another width or with input_dim, and for a decoder with a block that has no cross-attention.
std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config,
                                                     const TransformerStacks& stacks, std::uint64_t seed);

/// Any translator: what is between the ids and the logits.
struct TranslatorSpec {
  std::int64_t vocabulary = 0;
  nn::StackSpec encoder = {}, decoder = {};  ///< of one width; every block of the decoder reads a memory
  float embedding_factor = 1.0f;             ///< of the embeddings as input of the stacks
  float output_factor = 1.0f;                ///< of the rows that logits are made of
  /// The output matrix is the embeddings' table, or one of its own, "lm_head.weight".
  enum class Output : std::uint8_t { tied, own };
  Output output = Output::tied;
  nn::Linear::Bias bias = nn::Linear::Bias::with;  ///< of the logits: "final_logits_bias"
};
/// A translator whose values come from elsewhere, for inference. Its parameters are "model.shared",
/// "lm_head", "final_logits_bias", and those of TransformerStacks named "model.encoder" and "model.decoder".
/// config() throws, as above.
std::unique_ptr<SequenceToSequence> make_translator(const TranslatorSpec& spec,
                                                    nn::ParameterSet::Source source);

}  // namespace fovea::models
