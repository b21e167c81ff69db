// The ways to run a call of `fovea attend`: one attention, the difference of two, or latent attention.
#pragma once

#include <memory>

#include "cli/attend_call.h"

namespace fovea::cli {

/// Gradients by the names of their files.
class GradientFiles {
 public:
  /// Adds a tensor to write to, in the shape and dtype of `view`; none if `view` is empty.
  TensorView like(const std::string& name, const ConstTensorView& view);
  void add(const std::string& name, const Tensor& tensor) { files_.emplace_back(name, tensor); }
  /// Returns an empty view if there is no such name.
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
  /// Computes the results that the options ask for, and those that backward needs.
  virtual AttendResults forward(Executor* executor) = 0;
  /// `gradients` are those by the call's inputs. A mechanism with more inputs adds the gradients by them to
  /// `files`.
  virtual void backward(const AttentionLoss& loss, const AttentionGradients& gradients, GradientFiles& files,
                        Executor* executor) = 0;
};

/// `options` and `call` have to outlive the mechanism.
std::unique_ptr<Mechanism> make_mechanism(const AttendOptions& options, const AttendCall& call);

}  // namespace fovea::cli
