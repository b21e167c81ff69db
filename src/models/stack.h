// A model's configuration as that of its layers, for this room only.
#pragma once

#include "fovea/nn/transformer.h"

namespace fovea::models {

using Reads = nn::TransformerOptions::Reads;

/// `layers` blocks with the sizes and rates of `config`, each under its own name.
template <class Config>
nn::StackSpec stack_spec(const Config& config, std::int64_t layers, Reads reads,
                         nn::NormPlace norm = nn::NormPlace::pre) {
  return nn::stack_of({.layers = layers,
                       .dim = config.dim,
                       .feed_forward = config.feed_forward,
                       .heads = config.heads,
                       .reads = reads,
                       .norm = norm,
                       .dropout = config.dropout,
                       .attention_dropout = config.attention_dropout});
}

}  // namespace fovea::models
