// Configs as JSON, in the shape of a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "fovea/models/language_model.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::models {

using ModelConfig = std::variant<RnnConfig, TransformerConfig>;
/// The deepest JSON accepted. Hugging Face's configs have a few levels: objects in lists in an object.
inline constexpr int config_depth = 32;

/// Throws InvalidArgument for a key that is missing, a value out of range, or a variation that this library
/// lacks.
ModelConfig read_config(const std::string& text);
/// Models of a config in `parameters`, which are empty (make_model).
std::unique_ptr<SequenceToSequence> make_rnn(const RnnConfig& config, nn::ParameterSet parameters);
std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config,
                                                     nn::ParameterSet parameters);
/// A lower bound on the number of elements of all parameters, tight to a small factor. A reader compares it
/// with the size of the weights before it allocates by a config's numbers.
std::int64_t least_elements(const ModelConfig& config);
std::string write_config(const RnnConfig& config);
std::string write_config(const TransformerConfig& config);

/// The same for a language model, whose config.json is a Starcoder2Config, or our own where it has
/// recurrences.
bool is_own_language(const std::string& text);  ///< whether it has recurrences
/// Whether its type is Starcoder2's. read_language_config says whether its other values are ours.
bool may_be_starcoder(const std::string& text);
/// Whether read_config reads configs of this kind.
bool is_own_translator(const std::string& text);
/// The mixer of exactly this name, without the counts and lists of parse_mixers.
std::optional<LayerMixer> find_mixer(std::string_view name);
/// "attention, linear, ...", all names of mixers.
std::string mixer_names();
LanguageModelConfig read_language_config(const std::string& text);
std::int64_t least_elements(const LanguageModelConfig& config);
std::string write_config(const LanguageModelConfig& config);

}  // namespace fovea::models
