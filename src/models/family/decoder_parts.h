// What rows of families that read from left to right have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/family/row.h"

namespace fovea::models {

/// The language model NAMEForCausalLM, NAMEModel, and heads for labels over the last hidden states.
std::vector<ClassRow> decoder_classes(const std::string& name);
/// The same with a head for answers, whose class names the model "transformer" in most families.
std::vector<ClassRow> decoder_classes_with_answers(const std::string& name,
                                                   std::string_view prefix = "transformer.");
/// Labels of a sequence come from its last row.
std::vector<HeadRow> decoder_heads(std::string_view token_labels = "score");

/// A table of positions, layer norms before both parts, no gates, and biases but of queries, keys and values.
FamilyConfig gpt_defaults(const char* type, std::int64_t vocabulary, std::int64_t dim, std::int64_t layers,
                          std::int64_t heads);
/// GPT-2's keys, which some later decoders have too.
std::vector<Field> gpt_fields();

/// BLOOM's names, which Falcon has too, but for the norm before the feed-forward part. `of_qkv`: how the
/// tensor of queries, keys and values is stored.
std::vector<TensorRule> bloom_tensors(TensorRule::Layout of_qkv);

// -- of Llama and its descendants

/// The values of absent keys are those of the class.
FamilyConfig llama_defaults(const char* type, std::int64_t vocabulary, std::int64_t dim,
                            std::int64_t feed_forward, std::int64_t layers, std::int64_t heads);
std::vector<Field> llama_sizes();
/// llama_sizes with head_dim, rms_norm_eps and hidden_act.
std::vector<Field> llama_fields();
/// `norm`: their name of the norm of attention.
std::vector<TensorRule> attention_tensors(std::string_view norm = "model.layers.*.input_layernorm");
std::vector<TensorRule> gate_tensors();
/// Both, and the norm between them.
std::vector<TensorRule> llama_tensors();
/// A family with these fields beside llama_fields, llama_tensors, and heads for labels of the last row.
Family llama_family(const FamilyConfig& defaults, std::vector<ClassRow> classes,
                    const std::vector<Field>& fields);
/// Whether all matrices of a block have biases.
void read_biases(ConfigReader& reader, FamilyConfig& config, std::string_view key);
void read_use_bias(ConfigReader& reader, FamilyConfig& config);

}  // namespace fovea::models
