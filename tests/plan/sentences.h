// Calls as small as a sentence, which the algorithm `short` takes.
#pragma once

#include <string>
#include <vector>

#include "plan/case_table.h"

namespace fovea::testing {

/// The kernels of the algorithm `short` that this CPU has.
inline std::vector<std::string> short_kernels() {
  std::vector<std::string> kernels;
  for (const KernelInfo& info : list_kernels()) {
    if (info.available && info.name.ends_with(" short")) kernels.push_back(info.name);
  }
  return kernels;
}

/// Cases for each branch of `short`. They have two blocks of queries, query heads that share a key head, and
/// rows that see nothing. There are gaps between the keys of a row, scales of both signs, dropout and a sink.
inline std::vector<Case> sentences() {
  const Mask masks[] = {Everything{},
                        Causal{},
                        KeyLengths{},
                        Strided{5} & Causal{},
                        SlidingWindow{.lookback = 6, .lookahead = 2} & KeyLengths{},
                        (SlidingWindow{.lookback = 3} | GlobalTokens{0}) & Causal{}};
  const Normalizer normalizers[] = {Softmax{}, SoftmaxWithSink{}};
  std::vector<Case> cases;
  for (const Mask& mask : masks) {
    for (const Normalizer& normalizer : normalizers) {
      for (const double rate : {0.0, 0.3}) {
        for (const double scale : {0.4, -0.4, 0.0}) {
          Case& c = cases.emplace_back(Case{.name = to_string(mask) + ", dropout " + std::to_string(rate) +
                                                    ", scale " + std::to_string(scale),
                                            .spec = {.mask = mask, .normalizer = normalizer},
                                            .key_lengths = {50, 9}});
          c.spec.dropout.rate = rate;
          c.spec.scale = scale;
          c.shape = {.batch = 2,
                     .num_query_heads = 4,
                     .num_kv_heads = 2,
                     .query_len = 40,
                     .key_len = 50,
                     .head_dim = 20,
                     .value_dim = 12};
        }
      }
    }
  }
  return cases;
}

}  // namespace fovea::testing
