// Blocks whose residual, dropout and norm are one operation, beside the same blocks made of the operations
// one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "autograd/drawn.h"
#include "fovea/attention/masks.h"
#include "fovea/core/executor.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t dim = 24, batch = 3, rows = 11;
constexpr float rate = 0.2f;

BlockSpec block_of(NormPlace place, NormSpec::Kind kind) {
  const NormSpec norm{.kind = kind};
  return {.mixer = AttentionOptions{.num_query_heads = 2},
          .mlp = PlainMlp{.inner = 32},
          .norm = norm,
          .mixer_norm = place,
          .mlp_norm = place,
          .dropout = rate};
}

// The definition. Names are those of the stack, so that parameters start as its own do.
class OneByOne {
 public:
  OneByOne(ParameterSet& set, NormPlace place, NormSpec::Kind kind, std::int64_t count) : place_(place) {
    const BlockSpec spec = block_of(place, kind);
    const auto norm = [&](const std::string& name) { return Norm(set, name, dim, {.kind = kind}); };
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string layer = "s.layers." + std::to_string(i);
      blocks_.push_back(
          {.attention = {set, layer + ".self_attn", dim, std::get<AttentionOptions>(spec.mixer)},
           .feed_forward = {set, layer, dim, spec.mlp}});
      if (place == NormPlace::none) continue;
      blocks_.back().norms[0] = norm(layer + ".self_attn_layer_norm");
      blocks_.back().norms[1] = norm(layer + ".final_layer_norm");
      if (place != NormPlace::sandwich) continue;
      blocks_.back().ends[0] = norm(layer + ".self_attn_end_norm");
      blocks_.back().ends[1] = norm(layer + ".final_end_norm");
    }
    last_ = norm("s.layer_norm");
  }
  Var operator()(Context& context, Var x, const TransformerStack::Call& call) const {
    for (const Block& block : blocks_) {
      x = part(context, block, 0, x, [&](const Var& y) {
        return block.attention(context, y, y, {.mask = call.mask, .key_lengths = call.lengths});
      });
      x = part(context, block, 1, x, [&](const Var& y) { return block.feed_forward(context, y); });
    }
    return last_(context, x);
  }

 private:
  struct Block {
    MultiHeadAttention attention;
    FeedForward feed_forward;
    Norm norms[2] = {}, ends[2] = {};
  };
  template <class Part>
  Var part(Context& context, const Block& block, int n, const Var& x, Part&& compute) const {
    const bool in_front = place_ == NormPlace::pre || place_ == NormPlace::sandwich;
    Var y = compute(in_front ? block.norms[n](context, x) : x);
    if (place_ == NormPlace::sandwich) y = block.ends[n](context, y);
    if (place_ == NormPlace::end) y = block.norms[n](context, y);
    const Var sum = autograd::add(x, context.dropout(y, rate));
    return place_ == NormPlace::post ? block.norms[n](context, sum) : sum;
  }
  NormPlace place_;
  std::vector<Block> blocks_;
  Norm last_;
};

struct Results {
  Tensor trained, inferred, d_x;
};

template <class Model>
Results results_of(const Model& model) {
  const std::int64_t lengths[] = {rows, 4, 7};
  const TransformerStack::Call call{.mask = KeyLengths{}, .lengths = lengths};
  autograd::Parameter x{"x", autograd::drawn({batch, rows, dim}, 1),
                        Tensor::zeros(DType::f32, {batch, rows, dim})};
  Results r;
  Context inference;
  r.inferred = model(inference, Var(x.value), call).value();
  autograd::Tape tape;
  Context training{.tape = &tape, .dropout_seed = 7};
  const Var y = model(training, tape.use(x), call);
  r.trained = y.value();
  tape.backward(y, autograd::drawn(y.shape(), 2));
  r.d_x = x.gradient;
  return r;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST(ResidualStream, HasTheBitsOfTheOperationsOneByOne) {
  for (const NormSpec::Kind kind : {NormSpec::Kind::layer, NormSpec::Kind::rms}) {
    for (const NormPlace place :
         {NormPlace::pre, NormPlace::post, NormPlace::sandwich, NormPlace::end, NormPlace::none}) {
      for (const int threads : {1, 2, 5}) {
        const auto pool = make_thread_pool(threads);
        set_default_executor(pool.get());
        StackSpec spec{.dim = dim, .blocks = std::vector<BlockSpec>(2, block_of(place, kind))};
        spec.final_norm = NormSpec{.kind = kind};
        ParameterSet own(3), separate(3);
        const TransformerStack stack(own, "s", spec);
        const OneByOne definition(separate, place, kind, 2);
        ASSERT_EQ(own.count(), separate.count());
        const Results got = results_of(stack), want = results_of(definition);
        set_default_executor(nullptr);
        SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << ", place "
                                          << static_cast<int>(place) << ", " << threads << " threads");
        EXPECT_TRUE(same_bits(got.inferred, want.inferred));
        EXPECT_TRUE(same_bits(got.trained, want.trained));
        EXPECT_TRUE(same_bits(got.d_x, want.d_x));
        for (const Parameter& parameter : own.all())
          EXPECT_TRUE(same_bits(parameter.gradient, separate.at(parameter.name).gradient)) << parameter.name;
      }
    }
  }
}

// With weights of bf16 a part gets the rows of the norm before it in bf16. The definition hands over f32,
// which products round.
TEST(ResidualStream, HandsRowsOfBf16ToProductsThatWouldRoundThem) {
  const std::int64_t lengths[] = {rows, 4, 7};
  const Var x(autograd::drawn({batch, rows, dim}, 1));
  for (const NormPlace place :
       {NormPlace::pre, NormPlace::post, NormPlace::sandwich, NormPlace::end, NormPlace::none}) {
    for (const autograd::WeightType type :
         {autograd::WeightType::bf16, autograd::WeightType::f32, autograd::WeightType::int8}) {
      SCOPED_TRACE(::testing::Message()
                   << "place " << static_cast<int>(place) << ", weights " << autograd::to_string(type));
      StackSpec spec{.dim = dim, .blocks = std::vector<BlockSpec>(2, block_of(place, NormSpec::Kind::layer))};
      spec.final_norm = NormSpec{};
      ParameterSet own(3), separate(3);
      const TransformerStack stack(own, "s", spec);
      const OneByOne definition(separate, place, NormSpec::Kind::layer, 2);
      own.pack(type);
      separate.pack(type);
      // What asks for arguments of a call gets the rows in f32: it may compute with them.
      int asked = 0;
      const TransformerStack::Call plain{.mask = KeyLengths{}, .lengths = lengths};
      TransformerStack::Call asking = plain;
      asking.arguments = [&](std::string_view, std::size_t, const Var& read) {
        EXPECT_EQ(read.value().dtype(), DType::f32);
        ++asked;
        return std::vector<autograd::AttentionArgument>();
      };
      Context context;
      const Tensor want = definition(context, x, plain).value();
      EXPECT_TRUE(same_bits(stack(context, x, plain).value(), want));
      EXPECT_TRUE(same_bits(stack(context, x, asking).value(), want));
      EXPECT_EQ(asked, 2);
    }
  }
}

TEST(ResidualStream, LayersTakeRowsOfBf16WhereAllTheirWeightsAreOfBf16) {
  using RowsOf = MultiHeadAttention::RowsOf;
  ParameterSet set(3);
  const MultiHeadAttention attention(set, "a", dim, {.num_query_heads = 2});
  const FeedForward gated(set, "f", dim, GatedMlp{.inner = 32});
  Context inference;
  const auto taken = [&](const Context& context) {
    return std::vector<bool>{attention.takes_bf16(context, RowsOf::queries),
                             attention.takes_bf16(context, RowsOf::memory),
                             attention.takes_bf16(context, RowsOf::both), gated.takes_bf16(context)};
  };
  EXPECT_EQ(taken(inference), std::vector<bool>(4, false));
  set.pack(autograd::WeightType::int8);
  EXPECT_EQ(taken(inference), std::vector<bool>(4, false));
  set.pack(autograd::WeightType::bf16);
  EXPECT_EQ(taken(inference), std::vector<bool>(4, true));
  autograd::Tape tape;
  EXPECT_EQ(taken({.tape = &tape}), std::vector<bool>(4, false));
  attention.key().weight->packed = nullptr;
  gated.gate.weight->packed = nullptr;
  EXPECT_EQ(taken(inference), (std::vector<bool>{true, false, false, false}));
}

}  // namespace
}  // namespace fovea::nn
