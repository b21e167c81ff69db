// A row of `fovea bench kernels` measured: Fovea, what stands beside it and the rivals in turns, peaks probed
// in each turn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cases.h"
#include "bench/rivals.h"
#include "fovea/core/executor.h"

namespace fovea::bench {

/// For the tensors that the rivals read; removed with all that is in it.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Measuring {
  Executor& executor;
  Rivals& rivals;
  const WorkFolder& folder;
  std::string kernel;  ///< forced; empty: the best
  double seconds = 2.0, probe_seconds = 0.02;
  std::int64_t rounds = 3;     ///< at least
  std::int64_t pause_ms = 10;  ///< before each way, for threads of the one before to stop spinning
};

/// The row as the report has it.
nlohmann::json measure_row(const Measuring& m, const BenchCase& c);

}  // namespace fovea::bench
