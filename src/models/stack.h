// From a model's configuration to that of its layers. Private to this directory.
#pragma once

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

}  // namespace fovea::models
