// The time and memory of decoding one sentence, with and without reuse of the results of earlier steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fovea/models/decoding.h"

namespace fovea::bench {

struct Decoded {
  std::vector<std::int32_t> ids;
  models::DecodeStats stats;
  double seconds = 0.0;
  double tokens_per_second = 0.0;
  double megabytes = 0.0;  ///< peak resident size of the whole process
};

struct DecodeRow {
  std::string model;
  std::int64_t length = 0;
  Decoded on, off;     ///< with reuse and without
  double ratio = 0.0;  ///< seconds without reuse / seconds with reuse
};

/// Decodes with `beam` hypotheses (1: greedily), with source and target of the same length, by an untrained
/// model of each kind: the time does not depend on the weights. Calls `tell` as soon as a row is measured.
void measure_decoding(const std::vector<std::int64_t>& lengths, int beam,
                      const std::function<void(const DecodeRow&)>& tell);

}  // namespace fovea::bench
