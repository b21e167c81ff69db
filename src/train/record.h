// folder/training.json: learning curves for people and reports, and the options a training runs with, which a
// resumed training is compared with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/checkpoint.h"

namespace fovea::train {

/// Options by their names, as JSON text.
struct TrainingRecord {
  /// What decides the weights and which of them are the best: batches, data, seed, schedule, Adam, smoothing,
  /// metric. A resumed training must have the same.
  std::map<std::string, std::string> fixed;
  /// When to stop, validate, save, and how many snapshots to average: a resumed training may have others, and
  /// has its own.
  std::map<std::string, std::string> free;
};

/// `train_data` and `valid_data` are hashes of the examples.
TrainingRecord record_of(const TrainOptions& options, std::uint64_t train_data, std::uint64_t valid_data);

void save_record(const std::string& folder, const TrainingRecord& record, const TrainState& state);

/// Compares `record` with training.json in `folder`. Throws FileError if that cannot be read, or names each
/// option of `fixed` that differs or that it lacks. Returns a line for each option of `free` that differs.
std::vector<std::string> check_record(const std::string& folder, const TrainingRecord& record);

}  // namespace fovea::train
