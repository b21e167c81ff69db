// Transformers that get their positions only inside the attention (ALiBi with learned slopes, T5's bias, a
// lambda of this test) learn the generated corpus. Without these a layer could not tell the order of words.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "fovea/attention/make_mod.h"
#include "fovea/core/philox.h"
#include "fovea/models/transformer.h"
#include "fovea/train/batching.h"
#include "fovea/train/fit.h"
#include "train/tiny.h"

namespace fovea::train {
namespace {

using models::TransformerConfig;
using Positions = TransformerConfig::Positions;

TransformerConfig config(std::int64_t vocabulary, Positions positions) {
  return {.vocabulary = vocabulary,
          .dim = 32,
          .feed_forward = 64,
          .heads = 4,
          .encoder_layers = 2,
          .decoder_layers = 2,
          .norm = models::NormPlace::pre,
          .positions = positions,
          .dropout = 0.0f};
}

void add_lambda(nn::StackSpec& stack) {
  const Mod pull = make_mod("pull", {"rate"}, [](auto score, Site at, auto rate) {
    using T = elementwise::Scalar<decltype(score)>;
    return score - rate * elementwise::log(T(1) + elementwise::abs(T(at.query - at.key)));
  });
  Tensor start(DType::f32, {1, 4, 1, 1});
  start.fill(0.5);
  for (nn::BlockSpec& block : stack.blocks) {
    auto& attention = std::get<nn::AttentionOptions>(block.mixer);
    attention.spec.mods = {pull};
    attention.learned = {{"mods[0].rate", start}};
  }
}

struct Trained {
  double first = 0.0, last = 0.0;  // nats a token of the held-out sentences, before and after
  std::vector<std::string> still;  // arguments that training did not change
  std::int64_t arguments = 0;
};

double held_out(const Data& data, models::SequenceToSequence& model) {
  std::vector<std::size_t> all(data.valid.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  nn::Context context;
  autograd::CrossEntropyStats stats;
  model.loss(context, gather_batch(data.valid, all), {}, &stats);
  return stats.loss / static_cast<double>(stats.tokens);
}

Trained train_on(const Data& data, models::SequenceToSequence& model) {
  std::map<std::string, Tensor> before;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    if (parameter.name.find("mods[") != std::string::npos) before[parameter.name] = parameter.value.clone();
  }
  Trained trained{.first = held_out(data, model)};
  fit(model.parameters(), {.updates = 150, .schedule = nn::WarmupCosine{.peak = 1e-2, .warmup = 10}},
      [&](nn::Context& context, std::int64_t update) {
        PhiloxStream random(5, static_cast<std::uint64_t>(update) << 16);
        std::vector<std::size_t> index(30);
        for (std::size_t& i : index) i = random.next_below(static_cast<std::uint32_t>(data.train.size()));
        const models::Batch batch = gather_batch(data.train, index);
        const std::int64_t words =
            std::accumulate(batch.target_lengths.begin(), batch.target_lengths.end(), std::int64_t{0});
        return model.loss(context, batch, {.reduction = {.scale = 1.0f / static_cast<float>(words)}},
                          nullptr);
      });
  trained.last = held_out(data, model);
  for (const auto& [name, value] : before) {
    ++trained.arguments;
    double moved = 0.0;
    const Tensor after = model.parameters().at(name).value;
    for (std::int64_t i = 0; i < value.count(); ++i)
      moved = std::max(moved, std::abs(static_cast<double>(value.data<float>()[i] - after.data<float>()[i])));
    if (moved < 1e-3) trained.still.push_back(name);
  }
  return trained;
}

TEST(PositionsInTheAttention, AreLearnedFromTheGeneratedCorpus) {
  const Tiny tiny;
  const std::int64_t vocabulary = tiny.model()->vocabulary();
  const auto own = [&] {
    const TransformerConfig sizes = config(vocabulary, Positions::rotary);
    models::TransformerStacks stacks = models::transformer_stacks(config(vocabulary, Positions::alibi));
    add_lambda(stacks.encoder);
    add_lambda(stacks.decoder);
    return models::make_transformer(sizes, stacks, 3);
  };
  const std::tuple<const char*, std::unique_ptr<models::SequenceToSequence>, std::int64_t> cases[] = {
      {"alibi", models::make_transformer(config(vocabulary, Positions::alibi), 3), 4},  // 2 + 2 blocks
      {"relative", models::make_transformer(config(vocabulary, Positions::relative), 3),
       2},  // a table a side
      {"lambda", own(), 4}};
  for (const auto& [name, model, arguments] : cases) {
    const Trained trained = train_on(tiny.data, *model);
    EXPECT_NEAR(trained.first, std::log(static_cast<double>(vocabulary)), 1.0) << name;
    EXPECT_LT(trained.last, 0.7 * trained.first) << name;
    EXPECT_EQ(trained.arguments, arguments) << name;
    EXPECT_EQ(trained.still, std::vector<std::string>()) << name;
  }
}

}  // namespace
}  // namespace fovea::train
