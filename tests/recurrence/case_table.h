// The case table of recurrences: writes × decays × reads × normalisers × shapes × dtypes × packing × states.
// Each level of a factor is one row here, and meets every level of every other factor in some case.
// FOVEA_CASE=TEXT keeps the cases whose names contain the text.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/covering.h"
#include "recurrence/cases.h"

namespace fovea::testing {

struct RecurrenceLevel {
  std::string name;
  std::function<void(RecurrenceCase&)> apply;
};
using RecurrenceFactor = std::vector<RecurrenceLevel>;

inline RecurrenceFactor write_levels() {
  const auto delta = [](DeltaBy by) {
    return [by](RecurrenceCase& c) {
      c.spec.write = DeltaWrite{};
      c.delta_by = by;
    };
  };
  return {{"additive", [](RecurrenceCase&) {}},
          {"delta-beta", delta(DeltaBy::beta)},
          {"delta-erase", delta(DeltaBy::erase)},
          {"delta-both", delta(DeltaBy::both)},
          {"low-rank", [](RecurrenceCase& c) { c.spec.write = DiagonalPlusLowRankWrite{}; }}};
}

inline RecurrenceFactor decay_levels() {
  const auto level = [](const char* name, Decay decay, double strongest) {
    return RecurrenceLevel{name, [=](RecurrenceCase& c) {
                             c.spec.decay = decay;
                             c.strongest_gate = strongest;
                           }};
  };
  return {level("no-decay", NoDecay{}, 0),        level("constant", ConstantDecay{}, -0.5),
          level("scalar", ScalarDecay{}, -0.3),   level("scalar-60", ScalarDecay{}, -60),
          level("channels", KeyDecay{}, -0.3),    level("channels-60", KeyDecay{}, -60),
          level("channels-1.7", KeyDecay{}, -1.7)};  // chunks on both sides of MildDecays
}

inline RecurrenceFactor read_levels() {
  return {{"after", [](RecurrenceCase&) {}},
          {"before", [](RecurrenceCase& c) { c.spec.read = BeforeDecay{}; }},
          {"self-weight", [](RecurrenceCase& c) { c.spec.read = SelfWeight{}; }}};
}

inline RecurrenceFactor normalizer_levels() {
  const auto sum = [](RecurrenceCase& c) {
    c.spec.feature_map = EluPlusOne{};
    c.spec.normalizer = KeySum{};
  };
  return {{"plain", [](RecurrenceCase&) {}}, {"elu-sum", sum}};
}

// Chunks are 16 tokens, vectors 4 to 16 elements; 200 value columns are two tiles, 193 two of unlike widths.
// Blocks of rows of a state have an even number of them, but for the last: 27 and 34.
inline RecurrenceFactor shape_levels(bool small) {
  struct Sizes {
    std::int64_t batch, query_heads, key_heads, heads, len, key_dim, value_dim;
  };
  static constexpr Sizes all[]{{2, 2, 2, 2, 33, 16, 16},  {1, 1, 1, 1, 1, 3, 2},     {2, 4, 1, 2, 16, 8, 24},
                               {1, 2, 2, 4, 150, 24, 40}, {1, 1, 1, 2, 15, 17, 7},   {1, 2, 1, 2, 0, 8, 8},
                               {3, 1, 1, 1, 32, 5, 200},  {1, 1, 1, 1, 300, 64, 64}, {1, 6, 3, 3, 17, 12, 9},
                               {1, 2, 2, 2, 40, 27, 2},   {1, 1, 1, 2, 35, 34, 193}};
  static constexpr Sizes few[]{
      {2, 2, 2, 2, 7, 3, 2}, {1, 4, 1, 2, 19, 2, 3}, {1, 1, 1, 2, 5, 4, 1}, {2, 1, 1, 1, 1, 1, 2}};
  RecurrenceFactor levels;
  for (const Sizes& s : small ? std::span<const Sizes>(few) : std::span<const Sizes>(all)) {
    const auto text = [](std::int64_t n) { return std::to_string(n); };
    levels.push_back(
        {"b" + text(s.batch) + " h" + text(s.query_heads) + "/" + text(s.key_heads) + "/" + text(s.heads) +
             " t" + text(s.len) + " d" + text(s.key_dim) + "/" + text(s.value_dim),
         [s](RecurrenceCase& c) {
           c.shape = {s.batch, s.query_heads, s.key_heads, s.heads, s.len, s.key_dim, s.value_dim};
         }});
  }
  return levels;
}

inline RecurrenceFactor dtype_levels() {
  return {{"f32", [](RecurrenceCase& c) { c.dtype = DType::f32; }},
          {"f64", [](RecurrenceCase& c) { c.dtype = DType::f64; }},
          {"bf16", [](RecurrenceCase& c) { c.dtype = DType::bf16; }},
          {"f16", [](RecurrenceCase& c) { c.dtype = DType::f16; }}};
}

inline RecurrenceFactor packing_levels() {
  return {{"padded", [](RecurrenceCase&) {}},
          {"packed", [](RecurrenceCase& c) { c.packing = Packing::packed; }},
          {"masked", [](RecurrenceCase& c) { c.packing = Packing::masked; }},
          {"packed-masked", [](RecurrenceCase& c) { c.packing = Packing::packed_and_masked; }}};
}

inline RecurrenceFactor state_levels() {
  return {{"states", [](RecurrenceCase&) {}}, {"no-states", [](RecurrenceCase& c) { c.has_state = false; }}};
}

inline RecurrenceFactor layout_levels() {
  return {{"contiguous", [](RecurrenceCase&) {}},
          {"heads-inside", [](RecurrenceCase& c) { c.placed = Placed::heads_inside; }}};
}

/// Every two levels of every two factors occur together in some case.
inline std::vector<RecurrenceCase> recurrence_cases(const std::vector<RecurrenceFactor>& factors) {
  std::vector<int> counts;
  for (const RecurrenceFactor& factor : factors) counts.push_back(static_cast<int>(factor.size()));
  const char* wanted = std::getenv("FOVEA_CASE");
  std::vector<RecurrenceCase> cases;
  for (const CoveringRow& row : covering_array(counts)) {
    RecurrenceCase c;
    c.seed = cases.size() + 1;
    for (std::size_t f = 0; f < factors.size(); ++f) {
      const RecurrenceLevel& level = factors[f][static_cast<std::size_t>(row[f])];
      c.name += (f == 0 ? "" : " ") + level.name;
      level.apply(c);
    }
    if (!wanted || c.name.find(wanted) != std::string::npos) cases.push_back(c);
  }
  return cases;
}

inline std::vector<RecurrenceCase> recurrence_case_table() {
  return recurrence_cases({write_levels(), decay_levels(), read_levels(), normalizer_levels(),
                           shape_levels(false), dtype_levels(), packing_levels(), state_levels(),
                           layout_levels()});
}

/// Features and sums of keys that a kernel makes itself: additive writes alone.
inline std::vector<RecurrenceCase> mapped_recurrence_cases() {
  const auto elu = [](RecurrenceCase& c) { c.spec.feature_map = EluPlusOne{}; };
  const auto sum = [](RecurrenceCase& c) { c.spec.normalizer = KeySum{}; };
  const RecurrenceFactor maps{{"elu", elu},
                              {"sum", sum},
                              {"elu-sum",
                               [=](RecurrenceCase&c) {
                                 elu(c);
                                 sum(c);
                               }}},
      scales{{"scale", [](RecurrenceCase&) {}}, {"scale-0.7", [](RecurrenceCase&c) { c.spec.scale = -0.7; }}};
  return recurrence_cases({decay_levels(), read_levels(), maps, scales, shape_levels(false), dtype_levels(),
                           packing_levels(), state_levels(), layout_levels()});
}

/// For central differences: the reference in f64, small shapes.
inline std::vector<RecurrenceCase> recurrence_difference_cases() {
  std::vector<RecurrenceCase> cases =
      recurrence_cases({write_levels(), decay_levels(), read_levels(), normalizer_levels(),
                        shape_levels(true), packing_levels(), state_levels(), layout_levels()});
  for (RecurrenceCase& c : cases) c.dtype = DType::f64;
  return cases;
}

}  // namespace fovea::testing
