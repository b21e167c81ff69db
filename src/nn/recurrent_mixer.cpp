#include "fovea/nn/recurrent_mixer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/starts.h"
#include "fovea/core/kept_vector.h"
#include "nn/made.h"
#include "nn/mixers/layer.h"

namespace fovea::nn {
namespace {

// The checks of one layer's sizes.
struct Sizes {
  std::int64_t dim;

  void expect(bool good, const char* argument, const std::string& expected, std::int64_t got) const {
    if (!good)
      throw InvalidArgument("RecurrentMixer", std::string("options.") + argument, expected,
                            std::to_string(got));
  }
  void positive(const char* argument, std::int64_t got) const {
    expect(got >= 1, argument, "at least 1", got);
  }
  /// A size of a head that is not given: `total` divided among the heads.
  void divide(const char* argument, std::int64_t& size, std::int64_t total, std::int64_t heads) const {
    positive("num_heads", heads);
    if (size == 0) {
      expect(total % heads == 0, "num_heads",
             "a divisor of " + std::to_string(total) + " where " + argument + " is not given", heads);
      size = total / heads;
    }
    positive(argument, size);
  }
  void width(std::int64_t taps) const { expect(taps >= 2 && taps <= 8, "conv_width", "from 2 to 8", taps); }
};

void complete(LinearAttentionOptions& o, const Sizes& sizes) {
  sizes.divide("key_dim", o.key_dim, sizes.dim, o.num_heads);
  if (o.value_dim == 0) o.value_dim = o.key_dim;
  sizes.positive("value_dim", o.value_dim);
}

void complete(RetentionOptions& o, const Sizes& sizes) {
  sizes.divide("key_dim", o.key_dim, sizes.dim, o.num_heads);
  if (o.value_dim == 0) o.value_dim = 2 * o.key_dim;
  sizes.positive("value_dim", o.value_dim);
}

void complete(GatedLinearAttentionOptions& o, const Sizes& sizes) {
  sizes.divide("key_dim", o.key_dim, sizes.dim / 2, o.num_heads);
  sizes.divide("value_dim", o.value_dim, sizes.dim, o.num_heads);
  sizes.positive("gate_rank", o.gate_rank);
  if (!(o.gate_divisor > 0.0f))
    throw InvalidArgument("RecurrentMixer", "options.gate_divisor", "above 0",
                          std::to_string(o.gate_divisor));
}

void epsilon(const char* argument, float got) {
  if (!(got > 0.0f))
    throw InvalidArgument("RecurrentMixer", std::string("options.") + argument, "above 0",
                          std::to_string(got));
}

void complete(GatedDeltaOptions& o, const Sizes& sizes) {
  sizes.divide("key_dim", o.key_dim, sizes.dim, o.num_heads);
  if (o.num_key_heads == 0) o.num_key_heads = o.num_heads;
  sizes.expect(o.num_key_heads >= 1 && o.num_heads % o.num_key_heads == 0, "num_key_heads",
               "a divisor of num_heads " + std::to_string(o.num_heads), o.num_key_heads);
  epsilon("norm_epsilon", o.norm_epsilon);
  if (o.value_dim == 0) o.value_dim = o.key_dim;
  sizes.positive("value_dim", o.value_dim);
  sizes.width(o.conv_width);
}

void complete(Mamba2Options& o, const Sizes& sizes) {
  if (o.inner == 0) o.inner = 2 * sizes.dim;
  sizes.positive("inner", o.inner);
  if (o.head_dim == 0) o.head_dim = std::min<std::int64_t>(64, o.inner);
  sizes.positive("head_dim", o.head_dim);
  sizes.expect(o.inner % o.head_dim == 0, "head_dim", "a divisor of inner " + std::to_string(o.inner),
               o.head_dim);
  sizes.positive("groups", o.groups);
  const std::int64_t heads = o.inner / o.head_dim;
  sizes.expect(heads % o.groups == 0, "groups", "a divisor of the " + std::to_string(heads) + " heads",
               o.groups);
  epsilon("norm_epsilon", o.norm_epsilon);
  if (!(o.least_step >= 0.0f && o.least_step <= o.most_step))
    throw InvalidArgument("RecurrentMixer", "options.least_step", "from 0 to most_step",
                          std::to_string(o.least_step) + " beside " + std::to_string(o.most_step));
  sizes.positive("state_dim", o.state_dim);
  sizes.width(o.conv_width);
}

void complete(MambaOptions& o, const Sizes& sizes) {
  if (o.inner == 0) o.inner = 2 * sizes.dim;
  sizes.positive("inner", o.inner);
  sizes.positive("state_dim", o.state_dim);
  if (o.step_rank == 0) o.step_rank = (sizes.dim + 15) / 16;
  sizes.positive("step_rank", o.step_rank);
  if (o.selection_epsilon) epsilon("selection_epsilon", *o.selection_epsilon);
  sizes.width(o.conv_width);
}

void complete(Rwkv7Options& o, const Sizes& sizes) {
  if (o.head_dim == 0) o.head_dim = std::min<std::int64_t>(64, sizes.dim);
  sizes.positive("head_dim", o.head_dim);
  sizes.expect(sizes.dim % o.head_dim == 0, "head_dim", "a divisor of dim " + std::to_string(sizes.dim),
               o.head_dim);
  sizes.positive("rank", o.rank);
  sizes.positive("gate_rank", o.gate_rank);
}

void complete(PerformerOptions& o, const Sizes& sizes) {
  sizes.divide("key_dim", o.key_dim, sizes.dim, o.num_heads);
  if (o.value_dim == 0) o.value_dim = o.key_dim;
  sizes.positive("value_dim", o.value_dim);
  sizes.positive("features", o.features);
}

RecurrentOptions completed(RecurrentOptions options, std::int64_t dim) {
  const Sizes sizes{dim};
  if (dim < 1) throw InvalidArgument("RecurrentMixer", "dim", "at least 1", std::to_string(dim));
  std::visit([&](auto& o) { complete(o, sizes); }, options);
  return options;
}

// The lists of a call whose x is [batch, len, dim].
void check_lists(const RecurrentMixer::Call& call, std::int64_t batch, std::int64_t len) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("RecurrentMixer", argument, expected, got);
  };
  if (!call.starts.empty()) check_starts("RecurrentMixer", "call.starts", call.starts, len);
  const std::int64_t sequences = call.starts.empty() ? batch : std::ssize(call.starts) - 1;
  if (!call.first.empty() && std::ssize(call.first) != sequences)
    refuse("call.first", std::to_string(sequences) + " numbers, one for each sequence, or none",
           std::to_string(call.first.size()));
}

}  // namespace

RecurrentMixer::RecurrentMixer(ParameterSet& set, const std::string& name, std::int64_t dim,
                               const RecurrentOptions& options)
    : options_(completed(options, dim)),
      layer_(std::visit([&](const auto& o) { return make_layer(set, name, dim, o); }, options_)) {}

std::int64_t RecurrentMixer::state_size() const {
  std::int64_t size = 0;
  if (!layer_) return 0;
  for (const Shape& part : layer_->parts()) size += part.count();
  return size;
}

Tensor RecurrentMixer::resting_log_decays() const {
  return layer_ ? layer_->resting_log_decays() : Tensor();
}

Var RecurrentMixer::operator()(Context& context, const Var& x, const Call& call) const {
  check_made("RecurrentMixer", "options", layer_ != nullptr);
  if (!call.states.empty() && context.training())
    throw InvalidArgument("RecurrentMixer", "call.states", "none while training: states have no gradients",
                          "states");
  if (call.weights && !(call.states.empty() && call.starts.empty()))
    throw InvalidArgument("RecurrentMixer", "call.weights", "none beside states or starts", "a tensor");
  if (x.shape().rank() != 3 || (!call.starts.empty() && x.size(0) != 1))
    throw InvalidArgument("RecurrentMixer", "x", call.starts.empty() ? "[B, L, dim]" : "[1, L, dim]",
                          to_string(x.shape()));
  check_lists(call, x.size(0), x.size(1));
  const KeptVector<Shape> parts = layer_->parts();
  MixerTokens tokens(call, parts, x.size(0));
  return layer_->run(context, x, tokens);
}

const char* name_of(const RecurrentOptions& options) {
  static constexpr const char* names[] = {"linear", "retention", "gla",   "gated_delta",
                                          "mamba2", "mamba",     "rwkv7", "performer"};
  return names[options.index()];
}

}  // namespace fovea::nn
