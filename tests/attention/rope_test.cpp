// Rotary position embeddings as plain data: the text form and invalid values.
#include "fovea/attention/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fovea/attention/expression.h"
#include "fovea/core/philox.h"

namespace fovea {
namespace {

Rope random_rope(PhiloxStream& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.next_uniform() * static_cast<double>(n));
  };
  const auto factor = [&] { return 1.0 + 10.0 * random.next_uniform(); };
  Rope rope{.rotary_dim = 4 + 2 * below(100)};
  if (below(2)) rope.base = std::exp(20.0 * random.next_uniform()) + 1.0;
  if (below(2)) rope.layout = RopeLayout::interleaved;
  switch (below(7)) {
    case 1:
      rope.scaling = LinearScaling{factor()};
      break;
    case 2:
      rope.scaling = NtkScaling{factor()};
      break;
    case 3:
      rope.scaling = DynamicNtkScaling{factor(), 1 + below(10000)};
      break;
    case 4: {
      YarnScaling yarn{.factor = factor(), .original_max_positions = 1 + below(10000)};
      if (below(2)) yarn.beta_fast = 20.0 * factor();
      if (below(2)) yarn.beta_slow = random.next_uniform() + 0.01;
      if (below(2)) yarn.attention_factor = factor();
      if (below(2)) yarn.ends = YarnScaling::Ends::exact;
      rope.scaling = yarn;
      break;
    }
    case 5:
      rope.scaling = Llama3Scaling{factor(), random.next_uniform() + 0.01, factor() + 1.0, 1 + below(10000)};
      break;
    case 6: {
      LongRopeScaling longrope{.original_max_positions = 1 + below(10000)};
      for (std::int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
        longrope.short_factors.push_back(factor());
        longrope.long_factors.push_back(factor());
      }
      if (below(2)) longrope.attention_factor = factor();
      rope.scaling = longrope;
      break;
    }
    default:
      break;
  }
  return rope;
}

TEST(Rope, ParseOfPrintIsTheSame) {
  PhiloxStream random(5);
  for (int trial = 0; trial < 3000; ++trial) {
    const Rope rope = random_rope(random);
    ASSERT_EQ(parse_rope(to_string(rope)), rope) << to_string(rope);
  }
  for (const char* text :
       {"rope(64)", "rope(128,base=5e+05,interleaved,llama3(8,1,4,8192))", "rope(2,linear(4))",
        "rope(8,ntk(2.5))", "rope(8,dynamic(2,2048))", "rope(8,yarn(8,4096))",
        "rope(8,yarn(8,4096,beta_fast=64,beta_slow=2,attention=0.7,exact))",
        "rope(4,longrope(4096,short(1,1.5),long(2,30)))",
        "rope(4,longrope(4096,short(1,1.5),long(2,30),attention=1.19))"})
    EXPECT_EQ(to_string(parse_rope(text)), text);
  EXPECT_EQ(to_string(parse_rope(" rope ( 64 , yarn( 8 , 4096 , exact ) , half , base = 1e4 ) ")),
            "rope(64,yarn(8,4096,exact))");
  EXPECT_EQ(parse_rope("rope(64,base=500000,interleaved,llama3(8,1,4,8192))"),
            (Rope{.rotary_dim = 64,
                  .base = 500000,
                  .layout = RopeLayout::interleaved,
                  .scaling = Llama3Scaling{8, 1, 4, 8192}}));
}

TEST(Rope, MistakesNameTheColumn) {
  for (const auto& [text, column] : {std::pair("", 1),
                                     std::pair("rope", 5),
                                     std::pair("ropes(8)", 1),
                                     std::pair("rope()", 6),
                                     std::pair("rope(63)", 6),
                                     std::pair("rope( 0)", 7),
                                     std::pair("rope(-2)", 6),
                                     std::pair("rope(8", 7),
                                     std::pair("rope(8) 9", 9),
                                     std::pair("rope(8,)", 8),
                                     std::pair("rope(8,base)", 12),
                                     std::pair("rope(8,base=x)", 13),
                                     std::pair("rope(8,base=1)", 8),
                                     std::pair("rope(8,base=inf)", 8),
                                     std::pair("rope(8,base=2,base=3)", 15),
                                     std::pair("rope(8,half,interleaved)", 13),
                                     std::pair("rope(8,interleave)", 8),
                                     std::pair("rope(8,linear(0.5))", 8),
                                     std::pair("rope(8,linear(2),ntk(2))", 18),
                                     std::pair("rope(8,linear 2)", 15),
                                     std::pair("rope(8,linear(2)", 17),
                                     std::pair("rope(2,ntk(2))", 8),
                                     std::pair("rope(8,dynamic(2))", 17),
                                     std::pair("rope(8,dynamic(2,0.5))", 19),
                                     std::pair("rope(8,dynamic(2,0))", 8),
                                     std::pair("rope(8,yarn(2,100,beta))", 19),
                                     std::pair("rope(8,yarn(2,100,exact,exact))", 25),
                                     std::pair("rope(8,yarn(2,100,beta_fast=0.5))", 8),
                                     std::pair("rope(4,longrope(9,short(1),long(2,3)))", 8),
                                     std::pair("rope(4,longrope(9,short(1,2),long(2,0)))", 8),
                                     std::pair("rope(4,longrope(9,long(1,2),short(2,0)))", 19),
                                     std::pair("rope(4,longrope(9,short(1,2)))", 29),
                                     std::pair("rope(4,longrope(9,short(1,2),long(2,3),exact))", 40),
                                     std::pair("rope(8,llama(8,1,4,8192))", 8),
                                     std::pair("rope(8,llama3(8,4,1,8192))", 8),
                                     std::pair("rope(8,llama3(8,1,4,nan))", 21)}) {
    try {
      parse_rope(text);
      ADD_FAILURE() << text;
    } catch (const ExpressionError& error) {
      EXPECT_EQ(error.column(), static_cast<std::size_t>(column)) << text << ": " << error.what();
      EXPECT_EQ(error.function(), "parse_rope");
    }
  }
}

TEST(Rope, FieldsAreCheckedByName) {
  const double infinity = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [](const char* of, const char* field, const Rope& rope) {
    try {
      check_rope(rope);
      ADD_FAILURE() << of << " " << field << " " << to_string(rope);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.function(), of);
      EXPECT_EQ(error.argument(), field);
    }
  };
  for (const std::int64_t dim : {-2, 0, 1, 7, 65538}) refused("Rope", "rotary_dim", {.rotary_dim = dim});
  for (const double base : {nan, infinity, -2.0, 0.0, 1.0})
    refused("Rope", "base", {.rotary_dim = 8, .base = base});
  refused("Rope", "rotary_dim", {.rotary_dim = 2, .scaling = NtkScaling{2}});
  refused("Rope", "rotary_dim", {.rotary_dim = 2, .scaling = DynamicNtkScaling{2, 100}});
  for (const double bad : {nan, infinity, -1.0, 0.0}) {
    const auto scaled = [&](const char* of, const char* field, const RopeScaling& scaling) {
      refused(of, field, {.rotary_dim = 8, .scaling = scaling});
    };
    scaled("LinearScaling", "factor", LinearScaling{bad});
    scaled("NtkScaling", "factor", NtkScaling{bad});
    scaled("DynamicNtkScaling", "factor", DynamicNtkScaling{bad, 100});
    scaled("DynamicNtkScaling", "original_max_positions", DynamicNtkScaling{2, 0});
    scaled("YarnScaling", "factor", YarnScaling{.factor = bad, .original_max_positions = 100});
    scaled("YarnScaling", "original_max_positions", YarnScaling{.factor = 2});
    scaled("YarnScaling", "beta_fast", YarnScaling{2, 100, bad});
    scaled("YarnScaling", "beta_slow", YarnScaling{2, 100, 32, bad});
    scaled("YarnScaling", "beta_fast", YarnScaling{2, 100, 1, 2});
    scaled("YarnScaling", "attention_factor", YarnScaling{2, 100, 32, 1, bad});
    scaled("Llama3Scaling", "factor", Llama3Scaling{bad, 1, 4, 100});
    scaled("Llama3Scaling", "low_freq_factor", Llama3Scaling{2, bad, 4, 100});
    scaled("Llama3Scaling", "high_freq_factor", Llama3Scaling{2, 1, bad, 100});
    scaled("Llama3Scaling", "high_freq_factor", Llama3Scaling{2, 4, 4, 100});
    scaled("Llama3Scaling", "original_max_positions", Llama3Scaling{2, 1, 4, -5});
  }
}

}  // namespace
}  // namespace fovea
