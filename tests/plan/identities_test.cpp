// Identities of attention that hold for every implementation, tested on random calls: permutations, causal
// prefixes, merging, repeated keys, uniform averages, limits of masks and mods, grouped heads, independent
// heads, slopes over distances.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "fovea/mechanisms/forget.h"
#include "fovea/plan/merge.h"
#include "plan/draws.h"

namespace fovea::testing {
namespace {

// If keys, values and the mask are permuted in the same way, the output stays. The weights and the gradients
// of keys and values are permuted too.
TEST(Identity, OrderOfKeysDoesNotMatter) {
  for_draws(30, [](const Draw& draw) {
    const auto order = draw.permutation(draw.key_len);
    AttentionInputs in = draw.inputs();
    const AttentionSpec plain{.mask = draw.mask};
    const Forward want = draw.forward(plain, in);
    const Backward d_want = draw.backward(plain, in, want, draw.d_output);
    const Tensor key = taken(draw.key, 2, order), value = taken(draw.value, 2, order);
    in.key = key;
    in.value = value;
    const AttentionSpec spec{.mask =
                                 draw.mask_of(draw.key_len, [&](auto b, auto h, auto row, std::int64_t j) {
                                   return draw.visible(b, h, row, order[static_cast<std::size_t>(j)]);
                                 })};
    const Forward got = draw.forward(spec, in);
    expect_near(got, {want.output, want.log_sum_exp, taken(want.weights, 3, order)}, draw.tolerance());
    const Backward d_got = draw.backward(spec, in, got, draw.d_output);
    expect_near(d_got.query, d_want.query, draw.gradient_tolerance(), "d_query");
    expect_near(d_got.key, taken(d_want.key, 2, order), draw.gradient_tolerance(), "d_key");
    expect_near(d_got.value, taken(d_want.value, 2, order), draw.gradient_tolerance(), "d_value");
  });
}

// If queries and the mask are permuted in the same way, the rows of the results and the gradients of the
// queries are permuted too. The gradients of keys and values stay.
TEST(Identity, OrderOfQueriesCarriesOver) {
  for_draws(30, [](const Draw& draw) {
    const auto order = draw.permutation(draw.query_len);
    AttentionInputs in = draw.inputs();
    const AttentionSpec plain{.mask = draw.mask};
    const Forward want = draw.forward(plain, in);
    const Backward d_want = draw.backward(plain, in, want, draw.d_output);
    const Tensor query = taken(draw.query, 2, order);
    in.query = query;
    const AttentionSpec spec{.mask =
                                 draw.mask_of(draw.key_len, [&](auto b, auto h, std::int64_t row, auto j) {
                                   return draw.visible(b, h, order[static_cast<std::size_t>(row)], j);
                                 })};
    const Forward got = draw.forward(spec, in);
    expect_near(
        got, {taken(want.output, 2, order), taken(want.log_sum_exp, 2, order), taken(want.weights, 2, order)},
        draw.tolerance());
    const Backward d_got = draw.backward(spec, in, got, taken(draw.d_output, 2, order));
    expect_near(d_got.query, taken(d_want.query, 2, order), draw.gradient_tolerance(), "d_query");
    expect_near(d_got.key, d_want.key, draw.gradient_tolerance(), "d_key");
    expect_near(d_got.value, d_want.value, draw.gradient_tolerance(), "d_value");
  });
}

// Under a causal mask a query's output, weights and gradient do not depend on later keys and queries. This
// holds to the bit, also for normalisers that need a whole row at once.
TEST(Identity, CausalPrefixIsBitIdentical) {
  const Normalizer normalizers[] = {Softmax{}, Sigmoid{}, Sparsemax{}, Entmax{1.3}, HardSample{}};
  for_draws(30, [&](const Draw& draw) {
    const AttentionSpec spec{.mask = draw.mask & Causal{}, .normalizer = normalizers[draw.seed % 5]};
    AttentionInputs in = draw.inputs();
    // Keys and queries at positions from `first` on change.
    const std::int64_t first = draw.below(draw.key_len + 1);
    Tensor advantage = draw.tensor({draw.batch, draw.heads, draw.query_len});
    const Forward before = draw.forward(spec, in);
    const Backward d_before = draw.backward(spec, in, before, draw.d_output, advantage);
    const auto overwrite = [&](const Tensor& x, std::int64_t from) {
      const std::int64_t rows = x.size(2), dim = x.size(3);
      for (std::int64_t i = 0; i < x.count(); ++i) {
        if (i / dim % rows >= from) set_element(x, i, 2.0 + element(x, i));
      }
    };
    const Tensor query = draw.query.clone(), key = draw.key.clone(), value = draw.value.clone();
    overwrite(query, first - draw.offset);
    overwrite(key, first);
    overwrite(value, first);
    in.query = query;
    in.key = key;
    in.value = value;
    const Forward after = draw.forward(spec, in);
    const Backward d_after = draw.backward(spec, in, after, draw.d_output, advantage);
    draw.each_row([&](auto, auto, std::int64_t r, std::int64_t row) {
      if (r + draw.offset >= first) return;
      const auto same = [row](const Tensor& a, const Tensor& b) {
        const std::size_t width = static_cast<std::size_t>(a.size(3)) * size_of(a.dtype()),
                          at = static_cast<std::size_t>(row) * width;
        return std::memcmp(a.raw() + at, b.raw() + at, width) == 0;
      };
      ASSERT_TRUE(same(before.output, after.output)) << row;
      ASSERT_TRUE(same(before.weights, after.weights)) << row;
      ASSERT_TRUE(same(d_before.query, d_after.query)) << row;
    });
  });
}

// The call over keys [begin, end). Its keys are counted from 0, so positions are shifted.
Forward part_of(const Draw& draw, const AttentionSpec& spec, const Tensor& slope, std::int64_t begin,
                std::int64_t end) {
  AttentionInputs in = draw.inputs();
  in.key = in.key.slice(2, begin, end - begin);
  in.value = in.value.slice(2, begin, end - begin);
  in.query_offset = draw.offset - begin;
  in.arguments = {{"mods[0].slope", slope}};
  AttentionSpec part = spec;
  part.mask = draw.mask_of(
      end - begin,
      [&](auto b, auto h, auto row, std::int64_t j) { return draw.visible(b, h, row, begin + j); },
      *in.query_offset);
  return draw.forward(part, in);
}

// The results of parts of the keys merge to the result of all keys. The parts may be of any number and size,
// also empty, and may be merged in any grouping. The outputs of a sigmoid's parts are added.
TEST(Identity, PartsMakeTheWhole) {
  for_draws(30, [](const Draw& draw) {
    const Tensor slope = draw.tensor({1, draw.heads, 1, 1});
    for (std::int64_t h = 0; h < draw.heads; ++h) set_element(slope, h, 0.02 * element(slope, h));
    std::vector<std::int64_t> ends{0, draw.key_len};
    for (std::int64_t n = draw.below(4); n > 0; --n) ends.push_back(draw.below(draw.key_len + 1));
    std::sort(ends.begin(), ends.end());
    const AttentionSpec soft{.mods = {AlibiBias{}}},
        sigmoid{.mods = {AlibiBias{}}, .normalizer = Sigmoid{-0.5}};
    const Forward whole = part_of(draw, soft, slope, 0, draw.key_len),
                  whole_sigmoid = part_of(draw, sigmoid, slope, 0, draw.key_len);
    std::vector<Forward> parts;
    Tensor sum = Tensor::zeros(draw.dtype, whole.output.shape());
    for (std::size_t n = 1; n < ends.size(); ++n) {
      parts.push_back(part_of(draw, soft, slope, ends[n - 1], ends[n]));
      const Forward part = part_of(draw, sigmoid, slope, ends[n - 1], ends[n]);
      for (std::int64_t i = 0; i < sum.count(); ++i)
        set_element(sum, i, element(sum, i) + element(part.output, i));
    }
    expect_near(sum, whole_sigmoid.output, draw.tolerance() * static_cast<double>(draw.key_len), "sigmoid");
    const auto merged = [&](std::span<const Forward> list) {
      Forward result{unwritten_like(whole.output), unwritten_like(whole.log_sum_exp), {}};
      std::vector<AttentionPart> views;
      for (const Forward& part : list) views.push_back({part.output, part.log_sum_exp});
      merge_attention(views, result.output, result.log_sum_exp);
      return result;
    };
    const auto cut = static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(parts.size()) + 1));
    const std::span<const Forward> all(parts);
    const Forward left = merged(all.first(cut)), right = merged(all.subspan(cut));
    for (const Forward& got : {merged(all), merged(std::vector{left, right})}) {
      expect_near(got.output, whole.output, draw.tolerance(), "output");
      expect_near(got.log_sum_exp, whole.log_sum_exp, draw.tolerance(), "log_sum_exp");
    }
  });
}

// A bias of log n_j equals n_j copies of key j.
TEST(Identity, ABiasOfALogarithmRepeatsAKey) {
  for_draws(30, [](const Draw& draw) {
    const Tensor logs(draw.dtype, {1, 1, 1, draw.key_len});
    std::vector<std::int64_t> order;
    for (std::int64_t j = 0; j < draw.key_len; ++j) {
      const std::int64_t times = 1 + draw.below(3);
      set_element(logs, j, std::log(static_cast<double>(times)));
      order.insert(order.end(), static_cast<std::size_t>(times), j);
    }
    const auto count = static_cast<std::int64_t>(order.size());
    AttentionInputs in = draw.inputs(), repeated = in;
    in.arguments = {{"mods[0].bias", logs}};
    const Tensor key = taken(draw.key, 2, order), value = taken(draw.value, 2, order);
    repeated.key = key;
    repeated.value = value;
    const AttentionSpec biased{.mods = {DenseBias{}}, .mask = draw.mask},
        plain{.mask = draw.mask_of(count, [&](auto b, auto h, auto row, std::int64_t j) {
          return draw.visible(b, h, row, order[static_cast<std::size_t>(j)]);
        })};
    const Forward got = draw.forward(biased, in), want = draw.forward(plain, repeated);
    const double tolerance = 3 * draw.tolerance(), of_gradients = 3 * draw.gradient_tolerance();
    expect_near(got, {want.output, want.log_sum_exp, given_back(want.weights, 3, order, draw.key_len)},
                tolerance);
    const Backward d_got = draw.backward(biased, in, got, draw.d_output),
                   d_want = draw.backward(plain, repeated, want, draw.d_output);
    expect_near(d_got.query, d_want.query, of_gradients, "d_query");
    expect_near(d_got.key, given_back(d_want.key, 2, order, draw.key_len), of_gradients, "d_key");
    expect_near(d_got.value, given_back(d_want.value, 2, order, draw.key_len), of_gradients, "d_value");
  });
}

// If a score does not depend on the key, the output is the mean of the values that the query sees.
TEST(Identity, AScoreWithoutKeysIsTheMean) {
  for_draws(30, [](const Draw& draw) {
    constexpr std::int64_t hidden = 5;
    const bool coverage = draw.below(2) == 1, no_vector = draw.below(2) == 1;
    const auto zero = [&](Shape shape) { return Tensor::zeros(draw.dtype, shape); };
    const Tensor W = no_vector ? draw.tensor({hidden, draw.head_dim}) : zero({hidden, draw.head_dim}),
                 U = no_vector ? draw.tensor({hidden, draw.head_dim}) : zero({hidden, draw.head_dim}),
                 v = no_vector ? zero({hidden}) : draw.tensor({hidden}), b = draw.tensor({hidden}),
                 w = no_vector ? draw.tensor({hidden}) : zero({hidden});
    AttentionInputs in = draw.inputs();
    in.arguments = {{"score.W", W}, {"score.U", U}, {"score.v", v}, {"score.b", b}};
    if (coverage) in.arguments.set("score.w", w);
    const Score score = coverage ? Score(Coverage{}) : Score(Additive{});
    const Forward got = draw.forward({.score = score, .mask = draw.mask}, in);
    draw.each_row([&](std::int64_t n, std::int64_t h, std::int64_t r, std::int64_t row) {
      const std::int64_t count = draw.seen(n, h, r), kv = h / (draw.heads / draw.kv_heads);
      for (std::int64_t d = 0; d < draw.value_dim; ++d) {
        double mean = 0.0;
        for (std::int64_t j = 0; j < draw.key_len; ++j) {
          if (draw.visible(n, h, r, j))
            mean += element(draw.value, ((n * draw.kv_heads + kv) * draw.key_len + j) * draw.value_dim + d) /
                    static_cast<double>(count);
        }
        ASSERT_NEAR(element(got.output, row * draw.value_dim + d), mean, draw.tolerance()) << row;
      }
    });
  });
}

// Masks that hide nothing and a soft-cap far above all scores change nothing. A window of only the query's
// own position gives the value at that position.
TEST(Identity, MasksAndModsAtTheirEnds) {
  for_draws(30, [](const Draw& draw) {
    AttentionInputs in = draw.inputs();
    const std::int64_t offset = std::max<std::int64_t>(draw.offset, 0),
                       far = offset + draw.query_len + draw.key_len;
    in.query_offset = offset;  // not negative, because Chunked begins a new chunk at 0
    const Forward plain = draw.forward({.mask = draw.mask}, in);
    for (const Mask& all : {Mask(SlidingWindow{far, far}), Mask(Chunked{far}), Mask(Prefix{{draw.key_len}})})
      expect_near(draw.forward({.mask = draw.mask & all}, in), plain, 0.0);
    // cap·tanh(s / cap) = s - s³ / 3cap² ...
    expect_near(draw.forward({.mods = {SoftCap{1e9}}, .mask = draw.mask}, in), plain, draw.tolerance());
    in.query_offset = draw.offset;
    const Forward alone = draw.forward({.mask = SlidingWindow{0, 0}}, in);
    draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t row) {
      const std::int64_t at = r + draw.offset, kv = h / (draw.heads / draw.kv_heads);
      for (std::int64_t d = 0; d < draw.value_dim; ++d) {
        const double want =
            at < 0 || at >= draw.key_len
                ? 0.0
                : element(draw.value, ((b * draw.kv_heads + kv) * draw.key_len + at) * draw.value_dim + d);
        ASSERT_NEAR(element(alone.output, row * draw.value_dim + d), want, draw.tolerance()) << row;
      }
    });
  });
}

// A group of query heads that shares a kv head gives the results of query heads with a copy of that kv head
// each. Gradients of shared keys and values are sums over the group.
TEST(Identity, GroupedHeadsAreRepeatedKeys) {
  for_draws(30, [](const Draw& draw) {
    std::vector<std::int64_t> group;
    for (std::int64_t h = 0; h < draw.heads; ++h) group.push_back(h / (draw.heads / draw.kv_heads));
    const Tensor key = taken(draw.key, 1, group), value = taken(draw.value, 1, group);
    AttentionInputs in = draw.inputs(), repeated = in;
    repeated.key = key;
    repeated.value = value;
    const AttentionSpec spec{.mask = draw.mask};
    const Forward got = draw.forward(spec, in), want = draw.forward(spec, repeated);
    expect_near(got, want, draw.tolerance());
    const Backward d_got = draw.backward(spec, in, got, draw.d_output),
                   d_want = draw.backward(spec, repeated, want, draw.d_output);
    const double tolerance = draw.gradient_tolerance();
    expect_near(d_got.query, d_want.query, tolerance, "d_query");
    expect_near(d_got.key, given_back(d_want.key, 1, group, draw.kv_heads), tolerance, "d_key");
    expect_near(d_got.value, given_back(d_want.value, 1, group, draw.kv_heads), tolerance, "d_value");
  });
}

// Heads are independent: a call of one head alone, with its part of the mask, gives the same result.
TEST(Identity, HeadsAloneUnderTheirMask) {
  for_draws(30, [](const Draw& draw) {
    const AttentionSpec spec{.mask = draw.mask_of(draw.key_len, [&](auto b, auto h, auto row, auto j) {
      return draw.visible(b, h, row, j) && (b + h * row + j) % (2 + h) != 0;
    })};
    const AttentionInputs in = draw.inputs();
    const Forward all = draw.forward(spec, in);
    const Backward d_all = draw.backward(spec, in, all, draw.d_output);
    const std::int64_t group = draw.heads / draw.kv_heads;
    Tensor d_key = Tensor::zeros(draw.dtype, draw.key.shape());
    for (std::int64_t h = 0; h < draw.heads; ++h) {
      const std::vector<std::int64_t> mine{h}, shared{h / group};
      const Tensor query = taken(draw.query, 1, mine), key = taken(draw.key, 1, shared),
                   value = taken(draw.value, 1, shared);
      AttentionInputs alone = in;
      alone.query = query;
      alone.key = key;
      alone.value = value;
      const Predicate part("part",
                           {.batch = draw.batch,
                            .query_begin = draw.offset,
                            .query_end = draw.offset + draw.query_len,
                            .key_len = draw.key_len},
                           [&](const Site& at) {
                             const std::int64_t row = at.query - draw.offset;
                             return draw.visible(at.batch, h, row, at.key) &&
                                    (at.batch + h * row + at.key) % (2 + h) != 0;
                           });
      const Forward got = draw.forward({.mask = part}, alone);
      expect_near(got,
                  {taken(all.output, 1, mine), taken(all.log_sum_exp, 1, mine), taken(all.weights, 1, mine)},
                  draw.tolerance());
      const Backward d_got = draw.backward({.mask = part}, alone, got, taken(draw.d_output, 1, mine));
      expect_near(d_got.query, taken(d_all.query, 1, mine), draw.gradient_tolerance(), "d_query");
      const std::int64_t size = draw.key_len * draw.head_dim;
      for (std::int64_t i = 0; i < d_got.key.count(); ++i) {
        const std::int64_t to = (i / size * draw.kv_heads + h / group) * size + i % size;
        set_element(d_key, to, element(d_key, to) + element(d_got.key, i));
      }
    }
    expect_near(d_all.key, d_key, draw.gradient_tolerance() * static_cast<double>(group), "d_key");
  });
}

// -m(p - j) = -m·p + m·j, and the softmax of a row does not depend on -m·p. A forget gate with
// the same f everywhere is a slope of -log f.
TEST(Identity, ASlopeOverDistancesIsARampOverKeys) {
  for_draws(30, [](const Draw& draw) {
    const std::int64_t H = draw.heads, K = draw.key_len;
    const Tensor slopes = draw.tensor({1, H, 1, 1}), ramp(draw.dtype, {1, H, 1, K}),
                 log_f(draw.dtype, {draw.batch, H, K});
    for (std::int64_t h = 0; h < H; ++h) {
      set_element(slopes, h, 0.1 * element(slopes, h));
      for (std::int64_t j = 0; j < K; ++j)
        set_element(ramp, h * K + j, element(slopes, h) * static_cast<double>(j));
    }
    for (std::int64_t i = 0; i < log_f.count(); ++i) set_element(log_f, i, -element(slopes, i / K % H));
    AttentionInputs in = draw.inputs();
    const auto with = [&](const Mod& mod, const Mask& mask, const Arguments& arguments) {
      in.arguments = arguments;
      return draw.forward({.mods = {mod}, .mask = mask}, in);
    };
    const Forward alibi = with(AlibiBias{}, draw.mask, {{"mods[0].slope", slopes}}),
                  ramped = with(DenseBias{}, draw.mask, {{"mods[0].bias", ramp}});
    // Scores are now up to 0.1·(positions).
    const double tolerance = draw.tolerance() * (1 + 0.1 * static_cast<double>(K + draw.query_len));
    expect_near(alibi.output, ramped.output, tolerance, "output");
    expect_near(alibi.weights, ramped.weights, tolerance, "weights");
    draw.each_row([&](auto, std::int64_t h, std::int64_t r, std::int64_t row) {
      const double at = element(slopes, h) * static_cast<double>(r + draw.offset),
                   want = element(ramped.log_sum_exp, row) - at, got = element(alibi.log_sum_exp, row);
      if (got != want) {  // equal if both are -inf, whose difference is NaN
        ASSERT_NEAR(got, want, tolerance) << row;
      }
    });
    if (draw.offset < 0 || draw.offset + draw.query_len > K) return;
    const Tensor sums = forget_sums(log_f);
    const Mask causal = draw.mask & Causal{};
    const Forward gated =
        with(ForgetGate{}, causal,
             {{"mods[0].query", forget_queries(sums, draw.query_len, draw.offset)}, {"mods[0].key", sums}});
    expect_near(gated, with(AlibiBias{}, causal, {{"mods[0].slope", slopes}}), tolerance);
  });
}

}  // namespace
}  // namespace fovea::testing
