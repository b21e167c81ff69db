// From a model's configuration to that of its layers. Private to this directory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/models/mixers.h"
#include "fovea/nn/transformer.h"

namespace fovea::models {

using CrossAttention = nn::TransformerOptions::CrossAttention;

/// `layers` blocks with the sizes and rates of `config`, each under its own name.
template <class Config>
nn::StackSpec stack_spec(const Config& config, std::int64_t layers, CrossAttention cross_attention,
                         nn::NormPlace norm = nn::NormPlace::pre) {
  return nn::stack_of({.layers = layers,
                       .dim = config.dim,
                       .feed_forward = config.feed_forward,
                       .heads = config.heads,
                       .cross_attention = cross_attention,
                       .norm = norm,
                       .dropout = config.dropout,
                       .attention_dropout = config.attention_dropout});
}

/// The mixers of `stack`, one for each block, or none: then they stay as they are. Recurrences have `heads`
/// heads.
void set_mixers(nn::StackSpec& stack, std::span<const LayerMixer> mixers, std::int64_t heads, nn::Sees sees);
/// Throws InvalidArgument unless there is a mixer for each layer, or none. A list of attention alone becomes
/// empty: that is the model of a config without a list.
void check_mixers(const char* function, const char* argument, std::vector<LayerMixer>& mixers,
                  std::int64_t layers);

}  // namespace fovea::models
