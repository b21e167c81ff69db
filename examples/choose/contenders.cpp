#include "contenders.h"

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
          {"Mamba-2", stack_with(nn::Mamba2Options{.head_dim = 64, .state_dim = 64}), past}};
}

}  // namespace

std::vector<Contender> readers() {
  using enum Contender::Sees;
  constexpr std::int64_t longest = 4096;
  std::vector<Contender> all{
      {"full attention", stack_with(nn::AttentionOptions{}), Contender::Sees::everything},
      {"window + global tokens", stack_with(nn::AttentionOptions{}), window},
      {"Linformer, 256 rows", compressed(nn::LinformerRows{.kept = 256, .longest = longest}),
       Contender::Sees::everything, longest},
      {"token merging, half of the rows", merging(), Contender::Sees::everything},
      {"mean of 4 rows", compressed(nn::MeanRows{.group = 4}), Contender::Sees::everything},
      {"every 4th row", compressed(nn::StridedRows{.stride = 4}), Contender::Sees::everything},
      {"32 learned queries", compressed(nn::LearnedRows{.kept = 32}), Contender::Sees::everything}};
  const std::vector<Contender> past_alone = recurrences();
  all.insert(all.end(), past_alone.begin(), past_alone.end());
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
  return all;
}

Mask mask_of(const Contender& contender, const std::vector<std::int64_t>& global) {
  if (contender.sees == Contender::Sees::everything) return Everything{};
  if (contender.sees == Contender::Sees::past) return Causal{};
  return SlidingWindow{.lookback = kWindow, .lookahead = kWindow} | GlobalTokens{global};
}

}  // namespace choose
