// The selective scan of fovea/plan/selective_scan.h: what its kernels receive, and the candidates.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fovea/core/executor.h"
#include "kernels/recurrence/candidate.h"
#include "kernels/recurrence/stored_rows.h"

namespace fovea::kernels {

template <class T>
struct ScanProblem {
  std::int64_t channels = 0, groups = 0, state_dim = 0;
  bool softplus = false;
  const TokenSequence* sequences = nullptr;
  std::int64_t sequence_count = 0;
  std::int64_t len = 0;                            ///< of the tensors
  std::int64_t rows = 0;                           ///< entries · len
  std::int64_t longest = 0;                        ///< the most tokens of one sequence, or more
  StoredRows<const std::byte> x = {}, delta = {};  ///< [entries, len, channels]
  StoredRows<const std::byte> z = {};              ///< the same; null: no gate
  StoredRows<const std::byte> b = {}, c = {};      ///< [entries, len, groups · state_dim]; see below
  std::int64_t b_group = 0, c_group = 0;           ///< strides of groups in b and c, in elements
  const T* a = nullptr;                            ///< [channels, state_dim]
  const T *d = nullptr, *delta_bias = nullptr;     ///< [channels]; null: zeros
  /// Of a sequence: [channels, state_dim]. None: zeros.
  StatePlaces<const T> initial_state = {};

  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t state_size() const { return channels * state_dim; }
};

/// Null where a result is not wanted.
template <class T>
struct ScanResults {
  StoredRows<std::byte> output = {};
  StatePlaces<T> final_state = {};  ///< may be the memory of initial_state
};

/// The derivatives by the results, and the gradients that are wanted; null where there is none.
template <class T>
struct ScanGradientProblem {
  StoredRows<const std::byte> d_output = {};
  const T* d_final_state = nullptr;
  StoredRows<std::byte> x = {}, delta = {}, z = {}, b = {}, c = {};
  std::int64_t b_group = 0, c_group = 0;
  T *a = nullptr, *d = nullptr, *delta_bias = nullptr, *initial_state = nullptr;
};

template <class T>
using ScanCode = KernelCode<ScanProblem<T>, ScanResults<T>, ScanGradientProblem<T>>;
using ScanCandidate = CompiledKernel<ScanCode>;

/// Best first, the reference last.
std::span<const ScanCandidate> scan_candidates();
ScanCandidate scan_reference_candidate();

/// Tokens that a kernel takes at a time, and channels of a unit of work: rows of both are 16 KiB in f32.
/// Backward keeps the state before every 32 tokens, and all states and decays of 32 tokens of one vector of
/// channels. More channels in a unit need fewer partial sums of the gradients of B and C, and fewer units
/// feed fewer threads.
inline constexpr std::int64_t scan_tokens = 32, scan_channels = 128;

}  // namespace fovea::kernels
