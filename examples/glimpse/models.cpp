#include "models.h"

#include <cmath>

#include "fovea/core/philox.h"

namespace glimpse {

using namespace fovea;
using nn::Context;
using nn::Var;

HardModel::HardModel(std::uint64_t seed)
    : parameters(seed),
      first(parameters, "first", overview_values, dim),
      pixels(parameters, "pixels", window_pixels, dim),
      what(parameters, "what", dim, dim),
      where_to(parameters, "where", where_values, dim),
      key(parameters, "key", surrounding_values, key_dim),
      query(parameters, "query", dim, key_dim + from_here_values),
      expected(parameters, "expected", dim, 1),
      output(parameters, "output", dim, classes),
      memory(parameters, "memory", autograd::Cell::gru, dim, dim) {
  // The model begins by looking at bright places: at uniformly drawn places it would see too few digits to
  // learn any. Unit 0 of the keys is the mean of the middle 3 x 3, and queries ask for it.
  float* weights = key.weight->value.data<float>();
  for (int i = 0; i < surrounding_values; ++i)
    weights[i] = std::abs(i / 5 - 2) <= 1 && std::abs(i % 5 - 2) <= 1 ? 1.0f / 9 : 0.0f;
  query.bias->value.data<float>()[0] = 42.0f;
}

namespace {

std::vector<std::int32_t> blind_places(std::int64_t count, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<std::int32_t> drawn(static_cast<std::size_t>(count));
  for (std::int32_t& place : drawn) place = static_cast<std::int32_t>(random.next_below(places));
  return drawn;
}

}  // namespace

Looks HardModel::operator()(Context& context, const Canvases& canvases, Choice choice,
                            std::uint64_t seed) const {
  Looks looks;
  looks.places.resize(static_cast<std::size_t>(canvases.size));
  const Tensor blurred = overview(canvases);
  const Var keys = autograd::relu(key(context, surroundings(blurred)));
  Var state = autograd::tanh(first(context, blurred));
  for (std::uint64_t glimpse = 0; glimpse < glimpses; ++glimpse) {
    const std::vector<std::int32_t> next = choice == Choice::blind
                                               ? blind_places(canvases.size, seed + glimpse)
                                               : choose(context, state, keys, choice, seed + glimpse, looks);
    for (std::size_t b = 0; b < next.size(); ++b) looks.places[b].push_back(next[b]);
    const Var seen = what(context, autograd::relu(pixels(context, windows(canvases, next))));
    const Var place = where_to(context, where(next));
    state = memory.step(context, autograd::relu(autograd::add(seen, place)), state);
    looks.logits.push_back(output(context, state));
  }
  return looks;
}

// Hard attention is soft attention with another normaliser. REINFORCE also needs the soft weights.
std::vector<std::int32_t> HardModel::choose(Context& context, const Var& state, const Var& keys,
                                            Choice choice, std::uint64_t seed, Looks& looks) const {
  const std::int64_t size = state.size(0);
  const Var parts[] = {keys, from_here(looks.places)};
  const Var all = autograd::concat(parts, 2);
  const Var asked = autograd::reshape(query(context, state), {size, 1, all.size(2)});
  autograd::AttentionCall call{.spec = {.score = ScaledDot{}}, .sample_seed = seed};
  looks.weights.push_back(autograd::reshape(autograd::attention_weights(call, asked, all), {size, places}));
  // The expected reward is computed from the state, but its gradient does not reach the state.
  looks.expected.push_back(expected(context, Var(state.value())));
  call.spec.normalizer = choice == Choice::drawn ? Normalizer(HardSample{}) : Normalizer(HardArgmax{});
  const Var one = autograd::attention_weights(call, asked.value(), all.value());
  return autograd::argmax_rows(one.value().reshape({size, places}));
}

SoftModel::SoftModel(std::uint64_t seed)
    : parameters(seed),
      pixels(parameters, "pixels", window_pixels, dim),
      mixed(parameters, "mixed", queries * dim, hidden),
      output(parameters, "output", hidden, classes),
      pooling(parameters, "pooling", dim, 1, queries) {}

Var SoftModel::operator()(Context& context, const Canvases& canvases, Tensor* weights) const {
  const Var rows = autograd::relu(pixels(context, all_windows(canvases)));
  const Var pooled = autograd::reshape(pooling(context, rows, {}, weights), {canvases.size, queries * dim});
  return output(context, autograd::relu(mixed(context, pooled)));
}

}  // namespace glimpse
