// folder/training.json: the learning curves, for people and reports, and the options of the training, with
// which a resumed training is compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/checkpoint.h"

namespace fovea::train {

/// Options by their names, as JSON text.
struct TrainingRecord {
  /// The options that decide the weights and which of them are best: batches, data, seed, schedule, Adam,
  /// smoothing, metric. They must be the same in a resumed training.
  std::map<std::string, std::string> fixed;
  /// When to stop, validate and save, and how many snapshots to average. A resumed training may change these.
  std::map<std::string, std::string> free;
};

/// `train_data` and `valid_data` are hashes of the examples.
TrainingRecord record_of(const TrainOptions& options, std::uint64_t train_data, std::uint64_t valid_data);

void save_record(const std::string& folder, const TrainingRecord& record, const TrainState& state);

/// Compares `record` with training.json in `folder`. Throws FileError if the file cannot be read. Throws it,
/// with the names, if options of `fixed` differ or are missing. Returns one line for each option of `free`
/// that differs.
std::vector<std::string> check_record(const std::string& folder, const TrainingRecord& record);

}  // namespace fovea::train
