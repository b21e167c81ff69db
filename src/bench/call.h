// The engine's call for one row of `fovea bench kernels`: its operands, its workspace, its times.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {

class BenchCall {
 public:
  /// Makes standard normal operands, the same in every run. Throws what make_plan throws.
  BenchCall(const BenchCase& c, const std::string& kernel, Executor& executor);

  /// Seconds of each of `count` calls, with a ready plan and the caller's workspace. If count > 1, a call
  /// that is not timed comes before: threads and caches are then warm, as for the rivals.
  std::vector<double> run(std::int64_t count);
  /// The kernel of the row's pass.
  std::string kernel() const {
    return std::string(case_.pass == Pass::backward ? plan_.backward_kernel() : plan_.kernel());
  }
  /// The relative error (Frobenius norm) of the last run's output in one head, compared with double.
  double error() const;
  /// Operands and results, contiguous in the row's dtype: "query", "key", "value", "output"; for additive
  /// scores "v"; for backward "d_output", "d_query", "d_key", "d_value". Results are those of the last run.
  std::map<std::string, Tensor> tensors() const;

 private:
  void call();

  BenchCase case_;
  AttentionPlan plan_;
  Executor& executor_;
  Tensor query_, key_, value_, vector_, output_, log_sum_exp_, d_output_, d_query_, d_key_, d_value_;
  Tensor memory_;  // 64-byte aligned, as workspaces have to be
  std::span<std::byte> workspace_;
  AttentionInputs inputs_;
};

/// Writes the elements as they lie in memory.
void write_raw(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace fovea::bench
