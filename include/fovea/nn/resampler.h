// A fixed number of rows that stand for a sequence of any length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::nn {

struct ResamplerOptions {
  std::int64_t latents = 64, layers = 2, num_heads = 4, feed_forward = 256;
};

/// The Perceiver resampler of Flamingo (Alayrac et al. 2022, arXiv 2204.14198, section 3.1 and figure 5):
/// learned latents z read the sequence x, layer by layer,
///
///   z = z + attention(queries: norm(z), keys and values: [norm(z); norm(x)])
///
///   z = z + fc2(gelu(fc1(norm(z))))
///
/// and are normalised at the end. Its cost grows with the length of x, not with the square of it. Without
/// positions in x its order does not matter. In the Perceiver (Jaegle et al. 2021, arXiv 2103.03206) latents
/// read x and one another in turns; that is a TransformerStack with cross-attention whose input are learned
/// rows. Parameters: "<name>.latents" [latents, dim]; "<name>.layers.0.encoder_attn" and, of norms,
/// ".latent_layer_norm", ".memory_layer_norm" and ".final_layer_norm"; ".fc1", ".fc2"; "<name>.layer_norm".
class Resampler {
 public:
  Resampler() = default;
  /// Throws InvalidArgument for sizes below 1, and for heads that do not divide `dim`.
  Resampler(ParameterSet& set, const std::string& name, std::int64_t dim, const ResamplerOptions& options);
  /// x [B, L, dim] -> [B, latents, dim]. Entry b has lengths[b] rows; without `lengths` all L. `weights`, if
  /// given, receives those of the last layer, [B, heads, latents, latents + L]: the latents stand first.
  Var operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths = {},
                 Tensor* weights = nullptr) const;

 private:
  /// @cond
  struct Layer {
    MultiHeadAttention attention;
    Norm latent_norm, memory_norm, final_norm;
    FeedForward feed_forward;
  };
  /// @endcond
  Parameter* latents_ = nullptr;
  std::vector<Layer> layers_;
  Norm norm_;
};

}  // namespace fovea::nn
