// The whole state of a training, in one file, so that one rename replaces it atomically. A training that
// resumes from it continues as if it had never stopped.
#pragma once

#include <string>
#include <vector>

#include "fovea/files/safetensors.h"
#include "fovea/nn/optimizer.h"
#include "fovea/train/trainer.h"

namespace fovea::train {

struct TrainState {
  std::int64_t update = 0, epoch = 0;
  std::int64_t batch = 0;  ///< batches of this epoch already done
  double seconds = 0.0;
  double loss_sum = 0.0;  ///< since the last validation
  std::int64_t loss_tokens = 0;
  int without_improvement = 0;
  std::vector<Validation> curve;
  bool validation_due = false;          ///< stopped inside a validation, which runs first after resuming
  std::vector<std::int64_t> snapshots;  ///< updates of the snapshots kept, oldest first
};

std::string checkpoint_path(const std::string& folder);
std::string snapshot_path(const std::string& folder, std::int64_t update);

/// The tensor `name` of a checkpoint or a snapshot; `file` was read from `path`. Throws FileError if it is
/// missing, or has another shape or type than `like`.
const Tensor& tensor_like(const Tensor& like, const std::string& path, const files::TensorFile& file,
                          const std::string& name);

/// `fingerprint` identifies the model, data and options, which must not change.
void save_checkpoint(const std::string& folder, const TrainState& state, const std::string& fingerprint,
                     nn::ParameterSet& parameters, nn::Adam& adam);
/// Sets the parameters, the moments and the number of steps. Throws FileError if the file is not there or
/// damaged, or belongs to another training.
TrainState load_checkpoint(const std::string& folder, const std::string& fingerprint,
                           nn::ParameterSet& parameters, nn::Adam& adam);

}  // namespace fovea::train
