// Blocks of every kind. A stack gives the same row by row and at once, its gradients are derivatives, and
// its arguments are parameters.
#include "fovea/nn/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fovea/attention/make_mod.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/predicate.h"
#include "fovea/attention/streaming_sinks.h"
#include "fovea/nn/transformer.h"
#include "nn/kept_rows.h"
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
  add("sinusoidal", [](StackSpec& stack) { stack.positions = SinusoidalPositions{}; });
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

TEST(Arguments, UnknownOnesAreRefusedByName) {
  ParameterSet set(1);
  try {
    MultiHeadAttention(
        set, "a", 8,
        {.spec = {.mods = {AlibiBias{}}}, .learned = {{"mods[0].slopes", Tensor::zeros(DType::f32, {1})}}});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "options.learned");
    EXPECT_NE(std::string(error.what()).find("mods[0].slope"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("mods[0].slopes"), std::string::npos);
  }
}

// A decoding loop plans once, whatever mask expression it passes in each step, and the plan serves a prompt
// of several rows and another number of sequences too.
TEST(MultiHeadAttention, PlansOnceInADecodingLoop) {
  for (const Mask& mask :
       {Mask(SlidingWindow{.lookback = 20}), SlidingWindow{.lookback = 20} | StreamingSinks{4},
        ~(~Mask(SlidingWindow{.lookback = 20}) & ~Mask(StreamingSinks{4}))}) {
    SCOPED_TRACE(to_string(mask));
    ParameterSet set(2);
    const MultiHeadAttention layer(set, "a", 12,
                                   {.num_query_heads = 3, .spec = {.mods = {AlibiBias{}}, .mask = mask}});
    const Tensor input = set.normal("input", {2, 200, 12}, 1.0f).value;
    Context context;
    KeptRows kept(layer, 2);
    const auto read = [&](std::int64_t first, std::int64_t rows) {
      const Var some = autograd::slice(input, 1, first, rows);
      kept.append(context, some);
      layer.attend_cached(context, some, kept.views(),
                          {.mask = Causal{} & (StreamingSinks{1} | GlobalTokens{0}), .query_offset = first});
    };
    read(0, 40);
    for (std::int64_t t = 40; t < 200; ++t) read(t, 1);
    EXPECT_EQ(layer.plans_made(), 1);
  }
}

// A predicate has rows for as many keys as it was made for, fewer than a plan of the next power of two has.
TEST(MultiHeadAttention, DecodesBehindAPredicate) {
  constexpr std::int64_t length = 70;
  const Mask even = Predicate("even", {.query_end = length, .key_len = length},
                              [](const Site& site) { return site.key % 2 == 0 || site.key == site.query; });
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "a", 12, {.num_query_heads = 3, .spec = {.mask = even}});
  const Tensor input = set.normal("input", {1, length, 12}, 1.0f).value;
  Context context{.products = autograd::Products::by_row};
  const Tensor whole = layer(context, input, input, {.mask = Causal{}, .query_offset = 0}).value();
  KeptRows kept(layer, 1);
  for (std::int64_t t = 0; t < length; ++t) {
    const Var row = autograd::slice(input, 1, t, 1);
    kept.append(context, row);
    const Tensor one =
        layer.attend_cached(context, row, kept.views(), {.mask = Causal{}, .query_offset = t}).value();
    for (std::int64_t i = 0; i < 12; ++i)
      EXPECT_NEAR(one.data<float>()[i], whole.data<float>()[t * 12 + i], 1e-5) << t;
  }
}

// A batch that grows and shrinks as sentences come and go, and pieces of prompts, need one plan.
TEST(MultiHeadAttention, PlansOnceWhereTheBatchChanges) {
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "a", 12, {.num_query_heads = 3, .spec = {.mods = {AlibiBias{}}}});
  const Tensor input = set.normal("input", {8, 40, 12}, 1.0f).value;
  Context context{.products = autograd::Products::by_row};
  KeptRows kept(layer, 8);
  kept.append(context, autograd::slice(Var(input), 1, 0, 30));
  const std::vector<KeyValueView> views = kept.views();
  const auto read = [&](std::int64_t batch, std::int64_t rows) {
    const Var x = autograd::slice(autograd::slice(Var(input), 0, 0, batch), 1, 30 - rows, rows);
    return layer.attend_cached(context, x, std::span(views).first(static_cast<std::size_t>(batch)),
                               {.mask = Causal{}});
  };
  const Tensor all = read(8, 1).value();
  for (const std::int64_t batch : {7, 5, 6, 8, 5}) {
    const Tensor some = read(batch, 1).value();
    for (std::int64_t i = 0; i < some.count(); ++i) EXPECT_EQ(some.data<float>()[i], all.data<float>()[i]);
  }
  EXPECT_EQ(layer.plans_made(), 1);
  for (const std::int64_t rows : {5, 6, 7, 8}) read(8, rows);
  EXPECT_EQ(layer.plans_made(), 1);
}

// A mask with a number for each entry fits a batch of that size alone, whatever size a plan has room for.
TEST(MultiHeadAttention, MasksWithANumberForEachEntryDecodeBehindACache) {
  for (const std::int64_t batch : {1, 2, 3}) {
    ParameterSet set(2);
    const MultiHeadAttention layer(set, "a", 12, {.num_query_heads = 3});
    const Tensor input = set.normal("input", {batch, 9, 12}, 1.0f).value;
    Context context{.products = autograd::Products::by_row};
    KeptRows kept(layer, batch);
    kept.append(context, input);
    std::vector<std::int64_t> numbers;
    for (std::int64_t n = 0; n < batch; ++n) numbers.push_back(4 + n);
    for (const Mask& mask : {Mask(KeyLengths{numbers}), Mask(Prefix{numbers})}) {
      const Tensor whole = layer(context, input, input, {.mask = mask}).value(),
                   cached = layer.attend_cached(context, input, kept.views(), {.mask = mask}).value();
      for (std::int64_t i = 0; i < whole.count(); ++i)
        ASSERT_NEAR(cached.data<float>()[i], whole.data<float>()[i], 1e-5)
            << to_string(mask) << ", " << batch;
    }
  }
}

// Without an offset the queries are the last positions of what they read, for the mask and for rotations.
TEST(MultiHeadAttention, WithoutAnOffsetQueriesAreTheLastPositions) {
  ParameterSet set(5);
  const MultiHeadAttention layer(
      set, "a", 12, {.num_query_heads = 3, .rope = RopeTable({.rotary_dim = 4}, 16, DType::f32)});
  const Var all(set.normal("input", {2, 9, 12}, 1.0f).value), last = autograd::slice(all, 1, 6, 3);
  Context context;
  const Tensor whole = layer(context, all, all, {.mask = Causal{}}).value(),
               rows = layer(context, last, all, {.mask = Causal{}}).value(),
               given = layer(context, last, all, {.mask = Causal{}, .query_offset = 6}).value(),
               expected = autograd::slice(Var(whole), 1, 6, 3).value();
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    EXPECT_EQ(rows.data<float>()[i], given.data<float>()[i]);
    EXPECT_NEAR(rows.data<float>()[i], expected.data<float>()[i], 1e-5);
  }
}

// The layer draws with another seed at each use of a step and at each step, as dropout does.
TEST(MultiHeadAttention, DrawsWithTheContextsSeed) {
  ParameterSet set(6);
  const MultiHeadAttention layer(set, "a", 12,
                                 {.num_query_heads = 3, .spec = {.normalizer = GumbelSample{}}});
  const Var x(set.normal("input", {1, 30, 12}, 1.0f).value);
  const auto draw = [&](std::uint64_t step, int use) {
    autograd::Tape tape;
    Context context{.tape = &tape, .dropout_seed = step};
    Tensor weights;
    for (int i = 0; i <= use; ++i) layer(context, x, x, {.weights = &weights});
    return std::vector<float>(weights.data<float>(), weights.data<float>() + weights.count());
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

// The layer's plans take the kernel and the precision of its options.
TEST(MultiHeadAttention, TakesAKernelByName) {
  ParameterSet set(7);
  const Var x(set.normal("input", {1, 5, 12}, 1.0f).value);
  Context context;
  const auto run = [&](const std::string& kernel) {
    ParameterSet own(8);
    return MultiHeadAttention(own, "a", 12, {.num_query_heads = 3, .kernel = kernel})(context, x, x, {})
        .value();
  };
  const Tensor best = run(""), reference = run("reference");
  for (std::int64_t i = 0; i < best.count(); ++i)
    EXPECT_NEAR(best.data<float>()[i], reference.data<float>()[i], 1e-5);
  EXPECT_THROW(run("no such kernel"), InvalidArgument);
}

// Two sentences of different lengths in one cache, each with its next word, give the same as each alone.
// Keys are rotated and biased by distance.
TEST(MultiHeadAttention, EntriesOfDifferentLengthsDecodeTogether) {
  ParameterSet set(3);
  const MultiHeadAttention layer(set, "a", 12,
                                 {.num_query_heads = 3,
                                  .spec = {.mods = {AlibiBias{}}},
                                  .rope = RopeTable({.rotary_dim = 4}, 16, DType::f32)});
  const Tensor input = set.normal("input", {2, 9, 12}, 1.0f).value;
  const std::vector<std::int64_t> at{8, 3};
  const auto alone = [&](std::int64_t b) {  // the row of the next word, computed with all words at once
    Context context;
    const Var words =
        autograd::slice(autograd::slice(input, 0, b, 1), 1, 0, at[static_cast<std::size_t>(b)] + 1);
    return autograd::slice(layer(context, words, words, {.mask = Causal{}}), 1,
                           at[static_cast<std::size_t>(b)], 1)
        .value();
  };
  Tensor next(DType::f32, {2, 1, 12});
  for (std::int64_t b = 0; b < 2; ++b)
    std::copy_n(input.data<float>() + (b * 9 + at[static_cast<std::size_t>(b)]) * 12, 12,
                next.data<float>() + b * 12);
  Context context;
  KeptRows kept(layer, 2);
  kept.append(context, input);
  const MultiHeadAttention::Call call{.mask = Causal{}, .query_offsets = at};
  const Tensor cached = layer.attend_cached(context, next, kept.views(), call).value(),
               whole = layer(context, next, input, call).value();
  for (std::int64_t b = 0; b < 2; ++b) {
    const Tensor want = alone(b);
    for (std::int64_t d = 0; d < 12; ++d) {
      // Sums of at most 12 terms of order 1, through three products.
      EXPECT_NEAR(cached.data<float>()[b * 12 + d], want.data<float>()[d], 1e-5) << b;
      EXPECT_NEAR(whole.data<float>()[b * 12 + d], want.data<float>()[d], 1e-5) << b;
    }
  }
}

// Forward and backward: outputs equal those of the entries alone, and gradients of parameters equal the sum
// of theirs.
TEST(MultiHeadAttention, TakesPackedBatches) {
  ParameterSet set(3);
  const MultiHeadAttention layer(set, "m", 12,
                                 {.num_query_heads = 2,
                                  .spec = {.mods = {AlibiBias{}}},
                                  .rope = RopeTable({.rotary_dim = 4}, 16, DType::f32)});
  const std::vector<std::int64_t> starts{0, 4, 5, 11};
  const Tensor input = set.normal("input", {1, 11, 12}, 1.0f).value;
  const auto run = [&](const Tensor& words, const MultiHeadAttention::Call& call) {
    autograd::Tape tape;
    Context context;
    context.tape = &tape;
    const Var out = layer(context, words, words, call);
    tape.backward(autograd::sum(autograd::multiply(out, out)));
    return out.value();
  };
  const auto gradients = [&] {
    std::vector<Tensor> list;
    for (Parameter& parameter : set.all()) {
      list.push_back(parameter.gradient.clone());
      parameter.gradient.fill(0);
    }
    return list;
  };
  gradients();
  const Tensor together = run(input, {.mask = Causal{}, .query_starts = starts, .key_starts = starts});
  const std::vector<Tensor> got = gradients();
  for (std::size_t e = 0; e + 1 < starts.size(); ++e) {
    const Tensor words = autograd::slice(input, 1, starts[e], starts[e + 1] - starts[e]).value(),
                 alone = run(words, {.mask = Causal{}});
    for (std::int64_t i = 0; i < alone.count(); ++i)
      EXPECT_NEAR(together.data<float>()[starts[e] * 12 + i], alone.data<float>()[i], 1e-5) << e;
  }
  const std::vector<Tensor> want = gradients();
  for (std::size_t n = 0; n < want.size(); ++n) {
    for (std::int64_t i = 0; i < want[n].count(); ++i)
      EXPECT_NEAR(got[n].data<float>()[i], want[n].data<float>()[i], 1e-4) << n;
  }
  Context context;
  KeptRows kept(layer, 1);
  kept.append(context, input);
  EXPECT_THROW(
      layer.attend_cached(context, input, kept.views(), {.query_starts = starts, .key_starts = starts}),
      InvalidArgument);
  EXPECT_THROW(layer(context, input, input, {.query_starts = starts}), InvalidArgument);
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
