// What mixes the rows of a layer, as configs and commands name it, and what a layer keeps of a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::models {

/// Attention, a recurrence of nn/recurrent_mixer.h, or attention that reads blocks which are long ago as few
/// rows: nn/block_attention.h.
enum class LayerMixer : std::uint8_t {
  attention,
  linear,
  retention,
  gla,
  gated_delta,
  mamba2,
  mamba,
  rwkv7,
  performer,
  pooled,
  linformer,
  merging
};
/// "attention", "linear", "retention", "gla", "gated_delta", "mamba2", "mamba", "rwkv7", "performer",
/// "pooled", "linformer", "merging".
std::string_view to_string(LayerMixer mixer);
/// Whether rows can be read from both sides, as in an encoder: all but "pooled", "linformer" and "merging".
bool reads_both_sides(LayerMixer mixer);
/// A list such as "gated_delta*3,attention", repeated until there is one for each of `layers`. Throws
/// InvalidArgument for an unknown name, a count below 1, and a list whose length does not divide `layers`.
std::vector<LayerMixer> parse_mixers(std::string_view text, std::int64_t layers);

/// What a layer keeps of a sequence: a state of one size, rows of keys and values, or both.
struct LayerKeeps {
  std::string mixer;  ///< "attention", "gated_delta"
  std::int64_t state_bytes = 0, bytes_per_token = 0;
  /// What is left of the state of each head after a token, from the row that is forgotten fastest to that
  /// which is kept longest. As far as the parameters alone say it: RecurrentMixer::resting_log_decays. Empty
  /// for attention and for recurrences that do not forget.
  struct Decays {
    double least = 1.0, most = 1.0;
  };
  std::vector<Decays> decays;
};
/// One for each layer of a stack that reads row by row.
std::vector<LayerKeeps> layers_keep(const nn::TransformerStack& stack);

}  // namespace fovea::models
