// A model's configuration as that of its layers, for this room only.
#pragma once

#include "fovea/nn/transformer.h"

namespace fovea::models {

/// The sizes and rates of `config`, each under its own name; what a configuration leaves to its model stands
/// in `rest`: what the layers read, where positions are, and how many layers there are where the
/// configuration has two counts.
template <class Config>
nn::StackOptions stack_options(const Config& config, nn::StackOptions rest = {}) {
  if constexpr (requires { config.layers; }) rest.layers = config.layers;
  rest.dim = config.dim;
  rest.feed_forward = config.feed_forward;
  rest.heads = config.heads;
  rest.dropout = config.dropout;
  rest.attention_dropout = config.attention_dropout;
  return rest;
}

}  // namespace fovea::models
