// Blocks of every kind. A stack gives the same row by row and at once, its gradients are derivatives, and
// its arguments are parameters.
#include "fovea/nn/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fovea/attention/make_mod.h"
#include "fovea/attention/masks.h"
#include "fovea/nn/transformer.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t kDim = 12, kRows = 7;

struct Kind {
  std::string name;
  StackSpec spec;
};

// GELU instead of ReLU, because a difference across the corner of a ReLU is no derivative.
StackSpec plain() {
  StackSpec spec = stack_of({.layers = 2, .dim = kDim, .feed_forward = 10, .heads = 3});
  for (BlockSpec& block : spec.blocks)
    block.mlp = PlainMlp{.inner = 10, .activation = autograd::Activation::gelu};
  return spec;
}

// Every field of the description has a non-default value at least once.
std::vector<Kind> kinds() {
  std::vector<Kind> list;
  const auto add = [&](const std::string& name, const std::function<void(StackSpec&)>& change) {
    Kind kind{name, plain()};
    change(kind.spec);
    list.push_back(std::move(kind));
  };
  const auto each = [](StackSpec& stack, const std::function<void(AttentionOptions&, BlockSpec&)>& change) {
    for (BlockSpec& block : stack.blocks) change(std::get<AttentionOptions>(block.mixer), block);
  };
  add("alibi", [](StackSpec& stack) { add_alibi(stack, Sees::the_past); });
  add("alibi_both_sides", [](StackSpec& stack) { add_alibi(stack, Sees::both_sides); });
  add("relative", [](StackSpec& stack) {
    add_relative_bias(stack, {.buckets = 8, .max_distance = 5, .direction = RelativeBias::Direction::causal});
  });
  add("rotary", [](StackSpec& stack) { add_rotary(stack, 32); });
  add("query_key_norm", [&](StackSpec& stack) {
    add_rotary(stack, 32);
    each(stack, [](AttentionOptions& attention, BlockSpec&) {
      attention.query_key_norm =
          NormSpec{.kind = NormSpec::Kind::rms, .epsilon = 1e-3f, .weight_offset = 1.0f};
    });
  });
  add("learned_positions", [](StackSpec& stack) {
    stack.positions = LearnedPositions{.count = 16, .first_row = 2};
    stack.embedding_norm = NormSpec{};
  });
  add("albert", [](StackSpec& stack) {
    stack.blocks.resize(1);
    stack.rounds = 3;
    stack.input_dim = kDim;
    stack.positions = LearnedPositions{.count = 16};
    stack.embedding_norm = NormSpec{};
  });
  add("sinusoidal", [](StackSpec& stack) { stack.positions = SinusoidalPositions{}; });
  add("sinusoidal_from_2", [](StackSpec& stack) { stack.positions = SinusoidalPositions{.first = 2}; });
  add("lambda", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec&) {
      attention.spec.mods = {make_mod("pull", {"rate"}, [](auto score, Site at, auto rate) {
        using T = elementwise::Scalar<decltype(score)>;
        return score - rate * elementwise::log(T(1) + elementwise::abs(T(at.query - at.key)));
      })};
      Tensor start(DType::f32, {1, 3, 1, 1});
      start.fill(0.3);
      attention.learned = {{"mods[0].rate", start}};
    });
  });
  add("llama", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec& block) {
      attention = {.num_query_heads = 4,
                   .num_kv_heads = 2,
                   .head_dim = 5,
                   .value_dim = 4,
                   .biases = AttentionOptions::Biases::none()};
      block.norm = {.kind = NormSpec::Kind::rms, .epsilon = 1e-6f};
      block.mlp = GatedMlp{.inner = 9};
    });
    stack.final_norm = NormSpec{.kind = NormSpec::Kind::rms};
  });
  add("gemma", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec& block) {
      attention.spec.mods = {SoftCap{5.0}};
      attention.spec.mask = SlidingWindow{.lookback = 3};
      attention.spec.score = QkNorm{};
      attention.spec.normalizer = SoftmaxWithSink{};
      block.norm = {.kind = NormSpec::Kind::rms, .weight_offset = 1.0f};
      block.mixer_norm = block.mlp_norm = NormPlace::sandwich;
      block.mlp = GatedMlp{.inner = 9, .activation = autograd::Activation::gelu_tanh};
    });
  });
  add("olmo", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec& block) {
      attention.spec.score = Cosine{};
      block.mixer_norm = block.mlp_norm = NormPlace::end;
      block.norm.bias = Linear::Bias::without;
      block.mlp = PlainMlp{.inner = 9, .activation = autograd::Activation::silu};
    });
    stack.blocks[0].mixer_norm = NormPlace::none;
  });
  add("granite_and_olmo2", [&](StackSpec& stack) {
    add_rotary(stack, 32);
    each(stack, [](AttentionOptions& attention, BlockSpec& block) {
      attention.query_key_norm = NormSpec{.kind = NormSpec::Kind::rms, .epsilon = 1e-3f};
      attention.query_key_norm_of = AttentionOptions::NormOf::all_heads;
      block.branch_factor = 0.5f;
    });
  });
  for (const NormPlace norm : {NormPlace::none, NormPlace::pre}) {
    add(norm == NormPlace::none ? "gpt_j" : "gpt_neox", [&](StackSpec& stack) {
      each(stack, [&](AttentionOptions&, BlockSpec& block) {
        block.parts = BlockSpec::Parts::side_by_side;
        block.mlp_norm = norm;
      });
    });
  }
  add("additive", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec&) { attention.spec.score = Additive{}; });
  });
  add("gated_attention", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec& block) {
      attention.output_gate = AttentionOptions::OutputGate::with;
      attention.value_dim = 3;
      block.mlp = NoMlp{};
    });
  });
  add("low_rank", [&](StackSpec& stack) {
    each(stack, [](AttentionOptions& attention, BlockSpec&) {
      attention.spec.score = LowRankBilinear{};
      attention.hidden = 2;
    });
  });
  return list;
}

struct Blocks : testing::TestWithParam<Kind> {
  ParameterSet set{5};
  TransformerStack stack{set, "stack", GetParam().spec};
  Tensor x = set.normal("x", {2, kRows, kDim}, 1.0f).value;
};

// Products that sum in another order differ by 1e-5, for values of order 1.
TEST_P(Blocks, RowByRowEqualsTheWholeCall) {
  Context context;
  const TransformerStack::Call causal{.mask = Causal{}};
  const Tensor whole = stack(context, stack.enter(context, x), causal).value();
  TransformerStack::Cache cache = stack.start(context);
  for (std::int64_t t = 0; t < kRows; ++t) {
    const Var row = autograd::slice(x, 1, t, 1);
    const Tensor step = stack.extend(context, stack.enter(context, row, t), cache, causal).value();
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t d = 0; d < kDim; ++d)
        ASSERT_NEAR(step.view().at<float>({b, 0, d}), whole.view().at<float>({b, t, d}), 2e-5) << t;
    }
  }
}

// The loss is Σ w y with fixed weights. Central differences in f32 have an error of h² times the third
// derivative, and rounding over h.
TEST_P(Blocks, GradientsAreDerivatives) {
  const Tensor weights = set.normal("w", x.shape(), 1.0f).value;
  const std::vector<float> flat(weights.data<float>(), weights.data<float>() + weights.count());
  const Tensor nothing = Tensor::zeros(DType::f32, x.shape());
  const auto output = [&](Context& context) {
    return stack(context, stack.enter(context, x), {.mask = Causal{}});
  };
  const auto loss = [&] {
    Context context;
    const Tensor y = output(context).value();
    double sum = 0.0;
    for (std::int64_t i = 0; i < y.count(); ++i)
      sum += 0.5 * static_cast<double>(flat[static_cast<std::size_t>(i)]) *
             std::pow(static_cast<double>(y.data<float>()[i]), 2);
    return sum;
  };
  set.zero_gradients();
  autograd::Tape tape;
  Context training{.tape = &tape};
  tape.backward(autograd::squared_error(output(training), nothing, {flat, 0.5f}));
  const float h = 1e-2f;
  std::int64_t checked = 0;
  for (Parameter& parameter : set.all()) {
    if (!parameter.name.starts_with("stack.")) continue;
    // Relative to the largest gradient of the parameter, so that small gradients are checked too.
    double largest = 0.0;
    for (std::int64_t i = 0; i < parameter.gradient.count(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(parameter.gradient.data<float>()[i])));
    for (std::int64_t i = 0; i < parameter.value.count(); i += 1 + parameter.value.count() / 3) {
      float& value = parameter.value.data<float>()[i];
      const float at = value;
      value = at + h;
      const double up = loss();
      value = at - h;
      const double down = loss();
      value = at;
      const double gradient = parameter.gradient.data<float>()[i];
      ASSERT_NEAR((up - down) / (2.0 * static_cast<double>(h)), gradient, std::max(1e-2 * largest, 2e-3))
          << parameter.name << "[" << i << "]";
      ++checked;
    }
  }
  EXPECT_GT(checked, 40);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Blocks, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

// Each learned argument changes the output, so none is declared and then ignored.
TEST(Arguments, AreParametersThatTheOutputDependsOn) {
  const std::pair<const char*, const char*> expected[] = {
      {"alibi", "mods[0].slope"},    {"alibi_both_sides", "mods[0].slope"},
      {"lambda", "mods[0].rate"},    {"relative", "mods[0].table"},
      {"gemma", "score.query_gain"}, {"gemma", "score.key_gain"},
      {"gemma", "normalizer.sink"},  {"olmo", "score.temperature"},
      {"additive", "score.v"},       {"low_rank", "score.W"},
      {"low_rank", "score.U"}};
  for (const auto& [kind, argument] : expected) {
    for (const Kind& made : kinds()) {
      if (made.name != kind) continue;
      ParameterSet set(5);
      const TransformerStack stack(set, "stack", made.spec);
      const Tensor x = set.normal("x", {1, kRows, kDim}, 1.0f).value;
      Context context;
      const TransformerStack::Call causal{.mask = Causal{}};
      const Tensor before = stack(context, x, causal).value();
      const Tensor value = set.at(std::string("stack.layers.0.self_attn.") + argument).value;
      for (std::int64_t i = 0; i < value.count(); ++i)
        value.data<float>()[i] += 0.5f * static_cast<float>(i + 1);
      const Tensor after = stack(context, x, causal).value();
      double moved = 0.0;
      for (std::int64_t i = 0; i < before.count(); ++i)
        moved =
            std::max(moved, std::abs(static_cast<double>(before.data<float>()[i] - after.data<float>()[i])));
      EXPECT_GT(moved, 1e-3) << kind << " " << argument;
    }
  }
}

TEST(Arguments, OfTheFirstBlockAreShared) {
  ParameterSet set(1);
  StackSpec spec = plain();
  add_relative_bias(spec, {});
  const TransformerStack stack(set, "s", spec);
  EXPECT_TRUE(set.contains("s.layers.0.self_attn.mods[0].table"));
  EXPECT_FALSE(set.contains("s.layers.1.self_attn.mods[0].table"));
}

TEST(Arguments, AreNotLearnedIfFixed) {
  ParameterSet set(1);
  Tensor slopes(DType::f32, {1, 2, 1, 1});
  slopes.fill(0.25);
  const MultiHeadAttention layer(
      set, "a", 8,
      {.num_query_heads = 2, .spec = {.mods = {AlibiBias{}}}, .fixed = {{"mods[0].slope", slopes}}});
  EXPECT_EQ(layer.argument("mods[0].slope"), nullptr);
  Context context;
  const Tensor x = set.normal("x", {1, 5, 8}, 1.0f).value;
  EXPECT_NO_THROW(layer(context, x, x, {}));
}

// An argument that its mod declares as not learned is no parameter, although it says how it starts: it is
// fixed, or comes with each call.
TEST(Arguments, AreNotLearnedIfTheirModSaysSo) {
  ArgumentDeclaration factor = mod_argument("factor", "h");
  factor.start = ArgumentDeclaration::Start::one;
  for (const bool learned : {true, false}) {
    factor.learned = learned;
    const Mod mod = make_mod("factor", {factor}, [](auto score, Site, auto by) { return score * by; });
    ParameterSet set(1);
    const MultiHeadAttention layer(set, "a", 8, {.num_query_heads = 2, .spec = {.mods = {mod}}});
    EXPECT_EQ(set.contains("a.mods[0].factor"), learned);
    Context context;
    const Tensor x = set.normal("x", {1, 5, 8}, 1.0f).value;
    Tensor ones(DType::f32, {1, 2, 1, 1});
    ones.fill(1.0);
    if (learned) {
      EXPECT_NO_THROW(layer(context, x, x, {}));
    } else {
      EXPECT_THROW(layer(context, x, x, {}), InvalidArgument);
      EXPECT_NO_THROW(layer(context, x, x, {.arguments = {{"mods[0].factor", ones}}}));
    }
  }
}

// A bias that depends on the data comes with the call, and gets its gradient.
TEST(Arguments, ComeWithACall) {
  ParameterSet set(1);
  const MultiHeadAttention layer(set, "a", 8, {.num_query_heads = 2, .spec = {.mods = {DenseBias{}}}});
  const Tensor x = set.normal("x", {1, 5, 8}, 1.0f).value;
  Parameter& bias = set.normal("bias", {1, 2, 5, 5}, 1.0f);
  autograd::Tape tape;
  Context context{.tape = &tape};
  EXPECT_THROW(layer(context, x, x, {}), InvalidArgument);
  const Var y = layer(context, x, x, {.arguments = {{"mods[0].bias", context.use(bias)}}});
  tape.backward(autograd::squared_error(y, Tensor::zeros(DType::f32, y.shape())));
  double size = 0.0;
  for (std::int64_t i = 0; i < bias.gradient.count(); ++i)
    size += std::abs(static_cast<double>(bias.gradient.data<float>()[i]));
  EXPECT_GT(size, 1e-3);
}

// Centers that each layer computes from its own rows, by a layer of its own: the places and layers are those
// of the stack, the gradients are derivatives, and rows read one by one get the same centers.
TEST(Arguments, OfEachLayerComeFromItsRows) {
  ParameterSet set(4);
  StackSpec spec = stack_of({.layers = 2,
                             .dim = kDim,
                             .feed_forward = 10,
                             .heads = 3,
                             .cross_attention = TransformerOptions::CrossAttention::with});
  for (BlockSpec& block : spec.blocks) {
    block.mlp = PlainMlp{.inner = 10, .activation = autograd::Activation::gelu};
    std::get<AttentionOptions>(block.mixer).spec.weight_mods = {LocalGaussian{3.0}};
    block.cross->spec.mods = {DenseBias{}};
  }
  const TransformerStack stack(set, "s", spec);
  const std::vector<Linear> centers{Linear(set, "center.0", kDim, 1), Linear(set, "center.1", kDim, 1)};
  Parameter &x = set.normal("x", {2, kRows, kDim}, 1.0f), &memory = set.normal("memory", {2, 4, kDim}, 1.0f);
  std::vector<std::string> asked;
  const auto call_of = [&](Context& context) {
    TransformerStack::Call call{.mask = Causal{}, .memory = context.use(memory)};
    call.arguments = [&](std::string_view place, std::size_t layer,
                         const Var& rows) -> std::vector<autograd::AttentionArgument> {
      asked.push_back(std::string(place) + std::to_string(layer));
      const Shape shape{rows.size(0), 1, rows.size(1), 1};
      const Var value = reshape(centers[layer](context, rows), shape);
      return {{place == "self" ? "weight_mods[0].center" : "mods[0].bias", value}};
    };
    return call;
  };
  disturb(set);
  Context context;
  const TransformerStack::Call call = call_of(context);
  const Tensor whole = stack(context, x.value, call).value();
  EXPECT_EQ(asked, (std::vector<std::string>{"self0", "memory0", "self1", "memory1"}));
  TransformerStack::Cache cache = stack.start(context, memory.value);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const Tensor one = stack.extend(context, autograd::slice(x.value, 1, row, 1), cache, call).value();
    for (std::int64_t d = 0; d < kDim; ++d)
      ASSERT_NEAR(one.view().at<float>({1, 0, d}), whole.view().at<float>({1, row, d}), 1e-4) << row;
  }
  expect_gradients(set,
                   [&](Context& training) { return stack(training, training.use(x), call_of(training)); });
}

// A block that draws keys learns by the advantages of its layer: the gradient is that of Σ advantage · ln
// P(drawn key), P from the same block with softmax.
TEST(Blocks, ThatDrawKeysLearnByTheAdvantagesOfTheirLayer) {
  const auto spec_of = [](const Normalizer& normalizer) {
    StackSpec spec = plain();
    for (BlockSpec& block : spec.blocks) std::get<AttentionOptions>(block.mixer).spec.normalizer = normalizer;
    return spec;
  };
  ParameterSet set(3), soft_set(3);
  const TransformerStack stack(set, "s", spec_of(HardSample{})), soft(soft_set, "s", spec_of(Softmax{}));
  const Tensor x = Tensor::normal({1, kRows, kDim}, 11), advantage = Tensor::normal({1, 3, kRows}, 12),
               none = Tensor::zeros(DType::f32, {1, 3, kRows});
  const auto name = [](int layer) {
    return "s.layers." + std::to_string(layer) + ".self_attn.q_proj.weight";
  };
  Tensor drawn;
  // The loss itself has no gradient, so that only the estimate is left.
  const auto learn = [&](int layer) {
    set.zero_gradients();
    autograd::Tape tape;
    Context context{.tape = &tape, .dropout_seed = 5};
    TransformerStack::Call call{.mask = Causal{}};
    call.weights = [&](std::string_view, std::size_t at) { return at == 0 ? &drawn : nullptr; };
    call.advantage = [&](std::string_view place, std::size_t at) {
      EXPECT_EQ(place, "self");
      return static_cast<int>(at) == layer ? advantage : none;
    };
    const Var y = stack(context, x, call);
    tape.backward(autograd::squared_error(y, y.value()));
  };
  const auto size = [&](int layer) {
    double sum = 0.0;
    const Tensor& gradient = set.at(name(layer)).gradient;
    for (std::int64_t i = 0; i < gradient.count(); ++i) sum += std::abs(gradient.data<float>()[i]);
    return sum;
  };
  learn(1);
  EXPECT_EQ(size(0), 0.0);
  EXPECT_GT(size(1), 1e-3);
  learn(0);
  EXPECT_GT(size(0), 1e-3);
  EXPECT_EQ(size(1), 0.0);

  const auto expected_reward = [&] {
    Tensor weights;
    Context context;
    TransformerStack::Call call{.mask = Causal{}};
    call.weights = [&](std::string_view, std::size_t at) { return at == 0 ? &weights : nullptr; };
    soft(context, x, call);
    double sum = 0.0;
    for (std::int64_t n = 0; n < weights.count(); ++n)
      if (drawn.data<float>()[n] > 0.5f)
        sum += static_cast<double>(advantage.data<float>()[n / kRows]) *
               std::log(static_cast<double>(weights.data<float>()[n]));
    return sum;
  };
  const float h = 2e-3f;
  for (std::int64_t i = 0; i < kDim * kDim; i += 17) {
    float& parameter = soft_set.at(name(0)).value.data<float>()[i];
    const float at = parameter;
    ASSERT_EQ(at, set.at(name(0)).value.data<float>()[i]);
    parameter = at + h;
    const double up = expected_reward();
    parameter = at - h;
    const double down = expected_reward();
    parameter = at;
    const auto gradient = static_cast<double>(set.at(name(0)).gradient.data<float>()[i]);
    EXPECT_NEAR((up - down) / (2.0 * static_cast<double>(h)), gradient, 2e-2 * (1.0 + std::abs(gradient)))
        << i;
  }
  autograd::Tape tape;
  Context context{.tape = &tape};
  const Var without = stack(context, x, {.mask = Causal{}});
  EXPECT_THROW(tape.backward(autograd::squared_error(without, without.value())), InvalidArgument);
}

TEST(SideBySide, WhatCannotBeIsRefused) {
  const auto refused = [](const std::function<void(BlockSpec&)>& change) {
    StackSpec spec = plain();
    spec.blocks[1].parts = BlockSpec::Parts::side_by_side;
    change(spec.blocks[1]);
    ParameterSet set(1);
    try {
      TransformerStack(set, "s", spec);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](BlockSpec&) {}), "");
  const std::pair<const char*, std::function<void(BlockSpec&)>> wrong[] = {
      {"feed-forward part", [](BlockSpec& block) { block.mlp = NoMlp{}; }},
      {"mixer_norm", [](BlockSpec& block) { block.mixer_norm = NormPlace::post; }},
      {"mlp_norm", [](BlockSpec& block) { block.mlp_norm = NormPlace::sandwich; }},
      {"cross-attention", [](BlockSpec& block) { block.cross = AttentionOptions{}; }},
      {"merging", [](BlockSpec& block) { block.merging = TokenMerging{}; }}};
  EXPECT_NE(
      refused(wrong[4].second).find("expected no merging where parts are side by side, got block 1: merging"),
      std::string::npos)
      << refused(wrong[4].second);
  EXPECT_NE(refused(wrong[1].second)
                .find("expected mixer_norm = pre where parts are side by side, got block 1: "
                      "mixer_norm = post"),
            std::string::npos)
      << refused(wrong[1].second);
  for (const auto& [name, change] : wrong) {
    EXPECT_NE(refused(change).find(name), std::string::npos) << refused(change);
    EXPECT_NE(refused(change).find("block 1"), std::string::npos) << refused(change);
  }
}

// Layers hold addresses of parameters, which stay valid when the set is moved.
TEST(ParameterSet, MovesWithItsLayers) {
  struct Model {
    ParameterSet set{4};
    TransformerStack stack{set, "s", plain()};
  };
  Model model;
  const Tensor x = model.set.normal("x", {1, 4, kDim}, 1.0f).value;
  Context context;
  const Tensor before = model.stack(context, x, {}).value();
  std::vector<Model> models;
  models.push_back(std::move(model));
  models.reserve(models.capacity() + 1);  // moves once more
  const Tensor after = models[0].stack(context, x, {}).value();
  for (std::int64_t i = 0; i < before.count(); ++i)
    EXPECT_EQ(before.data<float>()[i], after.data<float>()[i]);
  EXPECT_EQ(&models[0].set.at("s.layer_norm.weight"),
            &models[0].set.all().at(models[0].set.all().size() - 2 - 1));
}

TEST(Stack, RefusesImpossibleDescriptionsAndCalls) {
  ParameterSet set(1);
  EXPECT_THROW(stack_of({.layers = -1}), InvalidArgument);
  EXPECT_THROW(MultiHeadAttention(set, "b", 8, {.num_query_heads = 4, .num_kv_heads = 3}), InvalidArgument);
  StackSpec spec = plain();
  spec.positions = LearnedPositions{.count = 4};
  const TransformerStack stack(set, "c", spec);
  Context context;
  EXPECT_THROW(stack.enter(context, Tensor::zeros(DType::f32, {1, 5, kDim})), InvalidArgument);
  EXPECT_THROW(stack.enter(context, Tensor::zeros(DType::f32, {1, 2, kDim}), 3), InvalidArgument);
}

}  // namespace
}  // namespace fovea::nn
