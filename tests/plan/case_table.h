// The shared case table: scores × mods × masks × normalisers × dtypes × layouts × shapes × scales × dropout ×
// offsets. Each level of a factor is one row here. Every test of the table then meets it with every level of
// every other factor. FOVEA_CASES=full crosses the first six factors completely; FOVEA_CASES=tenth keeps
// every tenth case. FOVEA_CASE=TEXT keeps the cases whose names contain the text.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention/elementwise.h"
#include "fovea/attention/make_mod.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/streaming_sinks.h"
#include "plan/cases.h"
#include "plan/covering.h"

namespace fovea::testing {

struct Level {
  std::string name;
  std::function<void(Case&)> apply;
  /// Whether this level may be combined with a level of another factor; nullptr: with all.
  bool (*allows)(std::string_view factor, std::string_view level) = nullptr;
};
struct Factor {
  std::string name;
  std::vector<Level> levels;
};

enum class Shapes {
  all,      ///< of the pairwise table
  cheap,    ///< of the full cross: both kernels, whole tiles and a remainder of rows
  cheapest  ///< for central differences
};

// Sizes come first, because the other factors read them.
inline Factor shape_factor(Shapes shapes) {
  struct Sizes {
    std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  };
  // Tiles are 48 queries (16, for at most 4 queries and for scores that are no product) and 128 keys. No
  // length of keys is 3, 5, 6, 8 or 11, the sizes of the mods' tables. Calls of at most 4 queries and more
  // than 256 keys are split.
  static constexpr Sizes all[]{
      {2, 2, 2, 5, 7, 8, 8},      {1, 4, 2, 1, 33, 16, 24},    {1, 1, 1, 49, 129, 17, 5},
      {2, 2, 1, 64, 64, 32, 32},  {1, 2, 2, 130, 260, 12, 40}, {1, 1, 1, 3, 1, 1, 1},
      {1, 2, 1, 97, 31, 64, 64},  {1, 2, 2, 0, 9, 8, 8},       {2, 1, 1, 4, 0, 8, 4},
      {1, 1, 1, 15, 127, 16, 16}, {2, 2, 1, 16, 128, 7, 9},    {1, 3, 3, 17, 17, 24, 24},
      {1, 2, 2, 47, 49, 8, 12},   {2, 1, 1, 48, 127, 16, 3},   {1, 4, 1, 4, 256, 24, 8},
      {1, 1, 1, 16, 129, 4, 20},  {1, 6, 2, 17, 15, 12, 12},   {2, 2, 2, 48, 48, 8, 8},
      {1, 2, 2, 49, 128, 33, 16}, {3, 1, 1, 2, 127, 8, 8},     {1, 1, 1, 1, 1, 2, 3},
      {1, 6, 2, 1, 700, 24, 20},  {2, 3, 1, 3, 300, 40, 8},    {1, 1, 1, 2, 1100, 16, 16}};
  static constexpr Sizes cheap[]{{2, 2, 2, 5, 7, 8, 8},   {1, 4, 2, 1, 33, 4, 6},  {1, 1, 1, 3, 1, 1, 1},
                                 {1, 1, 1, 49, 17, 5, 3}, {1, 2, 1, 17, 17, 6, 9}, {1, 1, 1, 5, 129, 4, 4},
                                 {2, 1, 1, 48, 9, 17, 2}, {1, 2, 2, 3, 130, 5, 7}};
  static constexpr Sizes cheapest[]{{2, 2, 2, 5, 7, 8, 8}, {1, 4, 2, 1, 33, 4, 6}, {1, 1, 1, 3, 1, 1, 1},
                                    {2, 2, 1, 5, 5, 3, 3}, {1, 2, 1, 4, 17, 5, 2}, {1, 2, 2, 2, 9, 17, 8}};
  const std::span<const Sizes> lists[]{all, cheap, cheapest};
  Factor factor{"shape", {}};
  for (const Sizes& s : lists[static_cast<int>(shapes)]) {
    const auto apply = [s](Case& c) {
      c.shape = {s.batch, s.heads, s.kv_heads, s.queries, s.keys, s.dim, s.value_dim};
      for (std::int64_t b = 0; b < s.batch; ++b)
        c.key_lengths.push_back(b == 0 ? std::max<std::int64_t>(s.keys - 2, 0) : s.keys / 2);
    };
    const auto text = [](std::int64_t n) { return std::to_string(n); };
    factor.levels.push_back({"b" + text(s.batch) + " h" + text(s.heads) + "/" + text(s.kv_heads) + " q" +
                                 text(s.queries) + " k" + text(s.keys) + " d" + text(s.dim) + "/" +
                                 text(s.value_dim),
                             apply});
  }
  return factor;
}

inline Factor score_factor() {
  const auto level = [](const char* name, Score score) {
    return Level{name, [score](Case& c) {
                   c.spec.score = score;
                   const ScoreDefinition& of = definition(score);
                   if (of.has_matrix()) c.shape.key_dim = c.shape.head_dim + 3;
                   if (of.has_hidden()) c.shape.hidden = 11;
                 }};
  };
  return {"score",
          {level("scaled-dot", ScaledDot{}), level("dot", Dot{}), level("bilinear", Bilinear{}),
           level("additive", Additive{}), level("low-rank", LowRankBilinear{}), level("location", Location{}),
           level("coverage", Coverage{}), level("cosine", Cosine{}), level("qk-norm", QkNorm{}),
           level("biaffine", Biaffine{})}};
}

// Every built-in mod alone, arguments shared in every way, chains of mods, and user mods. Arguments have the
// shapes that they declare, except where a level says how they share axes.
inline Factor mod_factor() {
  struct Sizes {
    std::int64_t B, H, Q, K;
  };
  const auto level = [](const char* name, Mods mods) {
    return Level{name, [mods](Case& c) { c.spec.mods = mods; }};
  };
  const auto shared = [](const char* name, Mods mods, std::vector<Shape> (*arguments)(const Sizes&)) {
    return Level{name, [mods, arguments](Case& c) {
                   c.spec.mods = mods;
                   c.mod_arguments = arguments(
                       {c.shape.batch, c.shape.num_query_heads, c.shape.query_len, c.shape.key_len});
                 }};
  };
  // A gate a query and a gate a key. Each derivative depends on the other operands too.
  const Mod gates = make_mod("gates", {"query", "key"}, [](auto score, Site at, auto query, auto key) {
    return elementwise::sigmoid(query + key) * score +
           elementwise::where(at.query < at.key, query * key, key);
  });
  const Mod log = make_mod("log", [](auto score, Site) {
    return elementwise::log(elementwise::exp(0.1 * score) + 1.0) * elementwise::abs(0.1 * score - 0.1);
  });
  using Shapes = std::vector<Shape>;
  const auto causal = RelativeBias::Direction::causal;
  return {"mods",
          {level("no-mods", {}), level("softcap", {SoftCap{1.5}}), level("alibi", {AlibiBias{}}),
           level("symmetric-alibi", {SymmetricAlibiBias{}}), level("dense", {DenseBias{}}),
           level("relative", {RelativeBias{8, 20}}), level("log", {log}), level("cooled", {Temperature{0.7}}),
           level("temperature", {LearnedTemperature{}}), level("relative-key", {RelativeKeyBias{5}}),
           level("local", {LocalWindow{4.3}}), level("forget", {ForgetGate{}}),
           shared("dense-shared", {DenseBias{}},
                  [](const Sizes& s) {
                    return Shapes{{1, 1, s.Q, s.K}};
                  }),
           shared("softcap-alibi-dense", {SoftCap{2}, AlibiBias{}, DenseBias{}},
                  [](const Sizes& s) {
                    return Shapes{{s.B, 1, 1, 1}, {1, 1, 1, s.K}};
                  }),
           shared("gates", {gates},
                  [](const Sizes& s) {
                    return Shapes{{s.B, s.H, s.Q, 1}, {s.B, s.H, 1, s.K}};
                  }),
           shared("dense-gates-softcap", {DenseBias{}, gates, SoftCap{3}},
                  [](const Sizes& s) {
                    return Shapes{{1, s.H, s.Q, s.K}, {1, 1, s.Q, 1}, {s.B, 1, 1, 1}};
                  }),
           shared("relative-dense", {RelativeBias{6, 10, causal}, DenseBias{}},
                  [](const Sizes& s) {
                    return Shapes{{s.B, 1, 1, 6}, {1, s.H, s.Q, 1}};
                  }),
           shared("relative-key-shared", {RelativeKeyBias{2}, RelativeKeyBias{1}}, [](const Sizes& s) {
             return Shapes{{1, 1, s.Q, 5}, {1, s.H, 1, 3}};
           })}};
}

// Weight mods: none, and arguments shared in every way.
inline Factor weight_mod_factor() {
  const Mod tilt = make_mod("tilt", {"row", "column"}, [](auto weight, Site at, auto row, auto column) {
    return (row * column + 1.5f) * elementwise::where(at.key % 3 == 1, weight * 0.8f, weight);
  });
  const auto none = [](Case&) {};
  const auto gaussian = [](Case& c) {
    c.spec.weight_mods = {LocalGaussian{6}};
    c.weight_mod_arguments = {{c.shape.batch, 1, c.shape.query_len, 1}};  // shared by the heads
  };
  const auto tilted = [tilt](Case& c) {
    c.spec.weight_mods = {tilt, SoftCap{2}, DenseBias{}};
    c.weight_mod_arguments = {{1, c.shape.num_query_heads, c.shape.query_len, 1},
                              {c.shape.batch, 1, 1, c.shape.key_len},
                              {1, 1, c.shape.query_len, c.shape.key_len}};
  };
  return {"weight-mods", {{"no-weight-mods", none}, {"gaussian", gaussian}, {"tilted", tilted}}};
}

inline Factor loss_factor() {
  const auto chosen = [](Case& c) {
    c.loss_of_weights = true;
    if (c.shape.query_len > 1) c.weight_rows = {c.shape.query_len - 1, 0, c.shape.query_len - 1};
    c.weight_heads = {c.shape.num_query_heads - 1};
  };
  return {"loss",
          {{"of-output", [](Case&) {}},
           {"of-weights", [](Case& c) { c.loss_of_weights = true; }},
           {"of-chosen-weights", chosen}}};
}

// Each head sees another part of the keys: those behind the query, a window, the keys that no other head
// sees, or nothing.
inline bool seen_by_head(const Site& at) {
  switch (at.head % 4) {
    case 0:
      return at.key <= at.query;
    case 1:
      return (at.query + at.key) % 3 == 0 && at.key < 60;
    case 2:
      return at.key >= 40 || at.key == at.query % 5 + at.batch;
    default:
      return false;
  }
}

inline Factor mask_factor() {
  const auto level = [](const char* name, Mask mask) {
    return Level{name, [mask](Case& c) { c.spec.mask = mask; }};
  };
  // Covers all positions that an offset may lead to.
  const auto sites = [](const Case& c) {
    const AttentionShape& s = c.shape;
    return Predicate::Sites{.batch = s.batch,
                            .heads = s.num_query_heads,
                            .query_begin = -s.query_len,
                            .query_end = s.query_len + s.key_len + 11,
                            .key_len = s.key_len};
  };
  const auto by_head = [sites](Case& c) { c.spec.mask = Predicate("by-head", sites(c), seen_by_head); };
  // One table for all entries. It ends before the longest calls do; no length of keys is a multiple of 37.
  const auto bytes_by_head = [](Case& c) {
    const std::int64_t heads = c.shape.num_query_heads, keys = c.shape.key_len, queries = 40;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(heads * queries * keys));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 37 < 16 ? 0 : 1;
    c.spec.mask =
        (Causal{} & ~Mask(Predicate("bytes", {.heads = heads, .query_end = queries, .key_len = keys},
                                    bytes.data(), {.head = queries * keys, .query = keys}))) |
        GlobalTokens{1};
  };
  const BigBird blocks{.length = 260, .size = 16, .window = 1, .global = 1, .random = 2, .seed = 3};
  return {"mask",
          {level("sinks&causal", StreamingSinks{3} & Causal{}), level("everything", Everything{}),
           level("causal", Causal{}), level("window", SlidingWindow{.lookback = 7, .lookahead = 3}),
           level("causal&window|global", (Causal{} & SlidingWindow{.lookback = 20}) | GlobalTokens{0, 5}),
           level("lengths", KeyLengths{}),
           level("~window&lengths", ~SlidingWindow{.lookback = 2, .lookahead = 2} & KeyLengths{}),
           level("nothing", ~Mask(Everything{})), level("prefix", Prefix{{9}}),
           level("documents", Documents{{3, 20, 20, 70, 140}}), level("chunked", Chunked{24}),
           level("strided&causal", Strided{5} & Causal{}), level("dilated", Dilated{4, 2, 3}),
           level("blocks", blocks), level("tree|global", Tree{{0, 0, 0, 1, 1, 2, 5}} | GlobalTokens{0}),
           level("groups", Groups{{0, 0, 0, 0, 1, 1, 2, 2, 3, 4}}), Level{"by-head", by_head},
           Level{"causal&~bytes-by-head|global", bytes_by_head}}};
}

// The chain's reference takes the square of the keys for each row: only sizes where that is affordable.
inline bool few_pairs_of_keys(std::string_view factor, std::string_view level) {
  long batch = 0, heads = 0, queries = 0, keys = 0;
  if (factor != "shape") return true;
  std::sscanf(std::string(level).c_str(), "b%ld h%ld/%*d q%ld k%ld", &batch, &heads, &queries, &keys);
  return batch * heads * queries * keys * keys < 100'000;
}

// A cap rounds large scores to one number, in float sooner than in the reference's double. This makes ties
// that the reference does not have.
inline bool uncapped(std::string_view factor, std::string_view level) {
  return factor != "mods" || level.find("softcap") == std::string_view::npos;
}

// A normaliser without a gradient by its scores sets c.score_gradients to false. One that cannot be combined
// with every mask or mod has a third member that says so.
inline Factor normalizer_factor() {
  return {"normalizer",
          {{"softmax", [](Case& c) { c.spec.normalizer = Softmax{}; }},
           {"sink", [](Case& c) { c.spec.normalizer = SoftmaxWithSink{}; }},
           {"scalable", [](Case& c) { c.spec.normalizer = ScalableSoftmax{}; }},
           {"sigmoid", [](Case& c) { c.spec.normalizer = Sigmoid{-1.5}; }},
           {"sparsemax", [](Case& c) { c.spec.normalizer = Sparsemax{}; }},
           {"entmax(1.5)", [](Case& c) { c.spec.normalizer = Entmax{1.5}; }},
           {"entmax(1.2)", [](Case& c) { c.spec.normalizer = Entmax{1.2}; }},
           {"adaptive-entmax", [](Case& c) { c.spec.normalizer = AdaptiveEntmax{}; }},
           {"argmax",
            [](Case& c) {
              c.spec.normalizer = HardArgmax{};
              c.score_gradients = false;
            },
            uncapped},
           {"sample", [](Case& c) { c.spec.normalizer = HardSample{}; }},
           {"gumbel", [](Case& c) { c.spec.normalizer = GumbelSample{0.8}; }},
           {"chain", [](Case& c) { c.spec.normalizer = LinearChain{}; }, few_pairs_of_keys}}};
}

/// All factors. The first, the sizes, must be applied first.
inline std::vector<Factor> case_factors(Shapes shapes) {
  const Factor dtype{"dtype",
                     {{"f32", [](Case& c) { c.dtype = DType::f32; }},
                      {"f64", [](Case& c) { c.dtype = DType::f64; }},
                      {"bf16", [](Case& c) { c.dtype = DType::bf16; }},
                      {"f16", [](Case& c) { c.dtype = DType::f16; }}}};
  const Factor layout{"layout",
                      {{"contiguous", [](Case& c) { c.layout = Layout::contiguous; }},
                       {"heads-inside", [](Case& c) { c.layout = Layout::heads_inside; }},
                       {"packed", [](Case& c) { c.layout = Layout::packed; }},
                       {"reversed", [](Case& c) { c.layout = Layout::reversed; }}}};
  const Factor scale{"scale",
                     {{"default-scale", [](Case&) {}}, {"scale-0.3", [](Case& c) { c.spec.scale = -0.3; }}}};
  const Factor dropout{
      "dropout", {{"no-dropout", [](Case&) {}}, {"dropout", [](Case& c) { c.spec.dropout.rate = 0.25; }}}};
  const Factor offset{"offset",
                      {{"at-the-end", [](Case&) {}},
                       {"offset-0", [](Case& c) { c.query_offset = 0; }},
                       {"offset-11", [](Case& c) { c.query_offset = 11; }},
                       {"offsets-by-entry", [](Case& c) {
                          for (std::int64_t b = 0; b < c.shape.batch; ++b)
                            c.query_offsets.push_back(b % 2 == 0 ? c.shape.key_len / 2 : -2);
                        }}}};
  return {shape_factor(shapes),
          score_factor(),
          mod_factor(),
          mask_factor(),
          normalizer_factor(),
          dtype,
          layout,
          scale,
          dropout,
          offset,
          weight_mod_factor(),
          loss_factor()};
}

inline bool allowed(const std::vector<Factor>& factors, int a, int i, int b, int j) {
  const Level &x = factors[a].levels[i], &y = factors[b].levels[j];
  return (!x.allows || x.allows(factors[b].name, y.name)) && (!y.allows || y.allows(factors[a].name, x.name));
}

inline Case make_case(const std::vector<Factor>& factors, const CoveringRow& row) {
  Case c;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    const Level& level = factors[f].levels[row[f]];
    level.apply(c);
    c.name += (f == 0 ? "" : " ") + level.name;
  }
  return c;
}

inline bool cases_wanted(std::string_view which) {
  const char* text = std::getenv("FOVEA_CASES");
  return text && which == text;
}

/// The cases whose name contains FOVEA_CASE, or all if it is not set. Of FOVEA_CASES=tenth every tenth one.
inline std::vector<Case> chosen(std::vector<Case> cases) {
  if (cases_wanted("tenth")) {
    for (std::size_t n = 0; 10 * n < cases.size(); ++n) std::swap(cases[n], cases[10 * n]);
    cases.resize((cases.size() + 9) / 10);
  }
  if (const char* text = std::getenv("FOVEA_CASE"))
    std::erase_if(cases, [&](const Case& c) { return c.name.find(text) == std::string::npos; });
  return cases;
}

inline std::vector<Case> pairwise_cases(const std::vector<Factor>& factors) {
  std::vector<int> levels;
  for (const Factor& factor : factors) levels.push_back(static_cast<int>(factor.levels.size()));
  std::vector<Case> cases;
  for (const CoveringRow& row :
       covering_array(levels, [&](int a, int i, int b, int j) { return allowed(factors, a, i, b, j); }))
    cases.push_back(make_case(factors, row));
  return chosen(std::move(cases));
}

/// The factors that the full table crosses: scores, mods, masks, normalisers (algebra), or also dtypes and
/// layouts (all).
enum class Crossed { algebra, all };

/// Every combination of the crossed factors; the other factors are drawn.
inline std::vector<Case> full_cases(const std::vector<Factor>& factors, Crossed crossed) {
  const auto count = static_cast<int>(factors.size());
  constexpr int crossed_begin = 1;
  const int crossed_end = crossed == Crossed::all ? 7 : 5;
  const auto levels = [&](int f) { return static_cast<int>(factors[f].levels.size()); };
  const auto fits = [&](const CoveringRow& row) {
    for (int a = 0; a < count; ++a) {
      for (int b = a + 1; b < count; ++b) {
        if (!allowed(factors, a, row[a], b, row[b])) return false;
      }
    }
    return true;
  };
  std::vector<Case> cases;
  PhiloxStream random(1);
  CoveringRow row(factors.size(), 0);
  for (int turned = crossed_begin; turned < crossed_end;) {
    bool fit = false;
    for (int attempt = 0; attempt < 50 && !fit; ++attempt) {
      for (int f = 0; f < count; ++f) {
        if (f < crossed_begin || f >= crossed_end)
          row[f] = static_cast<int>(random.next_below(static_cast<std::uint32_t>(levels(f))));
      }
      fit = fits(row);
    }
    if (fit) cases.push_back(make_case(factors, row));
    for (turned = crossed_begin; turned < crossed_end && ++row[turned] == levels(turned); ++turned)
      row[turned] = 0;
  }
  return chosen(std::move(cases));
}

/// Every pair of levels of every two factors.
inline const std::vector<Case>& case_table() {
  static const std::vector<Case> cases = pairwise_cases(case_factors(Shapes::all));
  return cases;
}
inline const std::vector<Case>& full_case_table() {
  static const std::vector<Case> cases = full_cases(case_factors(Shapes::cheap), Crossed::all);
  return cases;
}

inline bool full_cases_wanted() {
  return cases_wanted("full");
}
/// The table that the environment selects.
inline const std::vector<Case>& chosen_case_table() {
  return full_cases_wanted() ? full_case_table() : case_table();
}
/// For a test that forces a dtype and whose property does not depend on the layout: both are drawn, not
/// crossed.
inline std::vector<Case> chosen_case_table(DType forced, Shapes shapes = Shapes::all) {
  if (!full_cases_wanted()) return pairwise_cases(case_factors(shapes));
  std::vector<Case> cases =
      full_cases(case_factors(shapes == Shapes::all ? Shapes::cheap : shapes), Crossed::algebra);
  for (Case& c : cases) c.dtype = forced;
  return cases;
}

}  // namespace fovea::testing
