#include "contenders.h"

#include <algorithm>

#include "fovea/attention/masks.h"

namespace choose {

using namespace fovea;

namespace {

nn::StackSpec stack_with(const nn::Mixer& mixer) {
  return nn::stack_of(kDim, kLayers, {.mixer = mixer, .mlp = nn::PlainMlp{.inner = kFeedForward}});
}

nn::StackSpec compressed(const nn::Compression& compression) {
  return stack_with(nn::AttentionOptions{.compression = compression});
}

// Half of the rows are merged behind the first attention.
nn::StackSpec merging() {
  nn::StackSpec stack = stack_with(nn::AttentionOptions{});
  stack.blocks.front().merging = nn::TokenMerging{.share = 0.5};
  return stack;
}

// Of 64 characters that are finished 16 rows are left.
nn::StackSpec in_blocks(nn::BlockAttentionOptions::By by) {
  return stack_with(nn::BlockAttentionOptions{.block = 64, .kept = 16, .by = by});
}

std::vector<Contender> recurrences() {
  using enum Contender::Sees;
  return {{"linear attention", stack_with(nn::LinearAttentionOptions{}), past},
          {"Performer", stack_with(nn::PerformerOptions{.features = 128}), past},
          {"gated DeltaNet", stack_with(nn::GatedDeltaOptions{}), past},
          {"Mamba-2", stack_with(nn::Mamba2Options{.inner = kDim, .head_dim = 64, .state_dim = 64}), past}};
}

std::int64_t parameters_of(Contender& contender, std::int64_t feed_forward) {
  for (nn::BlockSpec& block : contender.stack.blocks) block.mlp = nn::PlainMlp{.inner = feed_forward};
  nn::ParameterSet set(1);
  const nn::TransformerStack stack(set, "stack", contender.stack);
  const FewRows few(set, contender.summary);
  return set.count();
}

// Chooses the inner size of the feed-forward parts, by which parameters grow evenly, so that there are as
// many parameters as full attention has. Linformer keeps that of full attention: its two matrices a layer
// grow with the longest sequence, and have many times the numbers of all the rest.
void make_equal(std::vector<Contender>& contenders) {
  const std::int64_t wanted = parameters_of(contenders.front(), kFeedForward);
  for (Contender& contender : contenders) {
    if (contender.learns == Contender::Learns::from_every_length) continue;
    const std::int64_t least = parameters_of(contender, 1), each = parameters_of(contender, 2) - least;
    const std::int64_t inner = 1 + (wanted - least + each / 2) / each;
    parameters_of(contender, std::max<std::int64_t>(inner, 1));
  }
}

}  // namespace

FewRows::FewRows(nn::ParameterSet& set, const Summary& summary) {
  if (const auto* learned = std::get_if<nn::LearnedRows>(&summary)) {
    count_ = learned->kept;
    made_by_ = nn::AttentionPooling(set, "few", kDim, learned->num_heads, learned->kept);
  }
  if (const auto* resampler = std::get_if<nn::ResamplerOptions>(&summary)) {
    count_ = resampler->latents;
    made_by_ = nn::Resampler(set, "few", kDim, *resampler);
  }
}

nn::Var FewRows::operator()(nn::Context& context, const nn::Var& rows) const {
  if (const auto* pooling = std::get_if<nn::AttentionPooling>(&made_by_))
    return (*pooling)(context, rows, {});
  return std::get<nn::Resampler>(made_by_)(context, rows);
}

std::vector<Contender> readers() {
  using enum Contender::Sees;
  const nn::StackSpec full = stack_with(nn::AttentionOptions{});
  nn::StackSpec one_layer = full;
  one_layer.blocks.pop_back();
  std::vector<Contender> all{
      {"full attention", full, everything},
      {"window + global tokens", full, window},
      {.name = "Linformer, 128 rows",
       .stack = compressed(nn::LinformerRows{.kept = 128, .longest = kLongest}),
       .learns = Contender::Learns::from_every_length},
      {"token merging, half of the rows", merging(), everything},
      {"mean of 4 rows", compressed(nn::MeanRows{.group = 4}), everything},
      {"every 4th row", compressed(nn::StridedRows{.stride = 4}), everything},
      {"32 learned queries in each layer", compressed(nn::LearnedRows{.kept = 32}), everything},
      {"pooling by 32 learned queries", full, everything, nn::LearnedRows{.kept = 32}},
      {"Perceiver resampler, 32 latents", one_layer, everything,
       nn::ResamplerOptions{.latents = 32, .layers = 2, .num_heads = 1, .feed_forward = 64}}};
  const std::vector<Contender> past_alone = recurrences();
  all.insert(all.end(), past_alone.begin(), past_alone.end());
  make_equal(all);
  return all;
}

std::vector<Contender> writers() {
  using enum Contender::Sees;
  using By = nn::BlockAttentionOptions::By;
  std::vector<Contender> all{{"full attention", stack_with(nn::AttentionOptions{}), past},
                             {"window + global tokens", stack_with(nn::AttentionOptions{}), window},
                             {"Linformer, 16 of 64 rows", in_blocks(By::sums), past},
                             {"token merging, 16 of 64 rows", in_blocks(By::mergings), past},
                             {"mean of 4 rows", in_blocks(By::means), past}};
  for (Contender& contender : all) nn::add_alibi(contender.stack, nn::Sees::the_past);
  for (Contender contender : recurrences()) {
    // The sums of these two are the same for every order of what was read. The others forget, or convolve.
    if (contender.name == "linear attention" || contender.name == "Performer")
      contender.stack.positions = nn::SinusoidalPositions{};
    all.push_back(contender);
  }
  make_equal(all);
  return all;
}

Mask mask_of(const Contender& contender, const std::vector<std::int64_t>& global) {
  if (contender.sees == Contender::Sees::everything) return Everything{};
  if (contender.sees == Contender::Sees::past) return Causal{};
  return SlidingWindow{.lookback = kWindow, .lookahead = kWindow} | GlobalTokens{global};
}

}  // namespace choose
