// What runs a call of `fovea attend`: attend itself, two of it (differential), or latent attention.
#pragma once

#include <memory>

#include "cli/attend_call.h"

namespace fovea::cli {

/// Gradients by the names of their files.
class GradientFiles {
 public:
  /// A tensor to be written to, in the shape and dtype of `view`; none where that is empty.
  TensorView like(const std::string& name, const ConstTensorView& view);
  void add(const std::string& name, const Tensor& tensor) { files_.emplace_back(name, tensor); }
  /// An empty view where there is none.
  TensorView find(const std::string& name) const;
  const std::vector<std::pair<std::string, Tensor>>& files() const { return files_; }

 private:
  std::vector<std::pair<std::string, Tensor>> files_;
};

struct AttendResults {
  Tensor output, log_sum_exp, weights;
};

class Mechanism {
 public:
  virtual ~Mechanism() = default;
  virtual const AttentionPlan& plan() const = 0;
  /// Computes what the options ask for, and what the backward needs.
  virtual AttendResults forward(Executor* executor) = 0;
  /// `gradients` are of what the call's inputs hold; what else the mechanism takes gets `files` of its own.
  virtual void backward(const AttentionLoss& loss, const AttentionGradients& gradients, GradientFiles& files,
                        Executor* executor) = 0;
};

/// Both outlive the mechanism.
std::unique_ptr<Mechanism> make_mechanism(const AttendOptions& options, const AttendCall& call);

}  // namespace fovea::cli
