// Measures a row of `fovea bench kernels`. Fovea, the call beside it and the rivals run in turns, and the
// peaks are probed in each turn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cases.h"
#include "bench/rivals.h"
#include "fovea/core/executor.h"

namespace fovea::bench {

/// A folder for what the rivals read. The destructor removes it with its contents, and so does
/// remove_work_folders.
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

/// Removes the work folders of this process, for a process that a signal ends. Any thread may call it.
void remove_work_folders() noexcept;

struct Measuring {
  Executor& executor;
  Rivals& rivals;
  const WorkFolder& folder;
  std::string kernel;  ///< a kernel to force; empty: the best
  double seconds = 2.0, probe_seconds = 0.02;
  std::int64_t rounds = 3;     ///< the least number of turns
  std::int64_t pause_ms = 10;  ///< pause before each contender, so that the threads of the one before stop
                               ///< spinning
};

/// Measures a row, and returns it as the report holds it.
nlohmann::json measure_row(const Measuring& m, const BenchCase& c);

}  // namespace fovea::bench
