// The depthwise causal convolution of fovea/plan/causal_conv.h: what its kernels receive, and the candidates.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fovea/core/executor.h"
#include "kernels/recurrence/candidate.h"
#include "kernels/recurrence/stored_rows.h"

namespace fovea::kernels {

/// The input at positions -(width - 1)..-1 is the initial state, that of zeros where there is none.
template <class T>
struct ConvProblem {
  std::int64_t channels = 0, width = 0;
  bool silu = false;
  const TokenSequence* sequences = nullptr;
  std::int64_t sequence_count = 0;
  std::int64_t rows = 0;               ///< entries · len
  StoredRows<const std::byte> x = {};  ///< [entries, len, channels]
  const T* weight = nullptr;           ///< [channels, width]
  const T* bias = nullptr;             ///< [channels]; null: zeros
  /// Of a sequence: [width - 1, channels]. None: zeros.
  StatePlaces<const T> initial_state = {};
  std::int64_t state_size() const { return (width - 1) * channels; }
};

/// Null where a result is not wanted.
template <class T>
struct ConvResults {
  StoredRows<std::byte> output = {};
  StatePlaces<T> final_state = {};  ///< may be the memory of initial_state
};

/// The derivatives by the results, and the gradients that are wanted; null where there is none.
template <class T>
struct ConvGradientProblem {
  StoredRows<const std::byte> d_output = {};
  const T* d_final_state = nullptr;
  StoredRows<std::byte> x = {};
  T *weight = nullptr, *bias = nullptr, *initial_state = nullptr;
};

template <class T>
using ConvCode = KernelCode<ConvProblem<T>, ConvResults<T>, ConvGradientProblem<T>>;
using ConvCandidate = CompiledKernel<ConvCode>;

/// Best first, the reference last.
std::span<const ConvCandidate> conv_candidates();
ConvCandidate conv_reference_candidate();

/// Tokens and channels of a unit of work. The inputs, sums and gradients of 512 channels fit the first-level
/// cache for 4 taps. A block of tokens has partial sums of the weights' gradients, so short blocks cost
/// memory.
inline constexpr std::int64_t conv_tokens = 256, conv_channels = 512;
inline constexpr std::int64_t conv_most_width = 8;

}  // namespace fovea::kernels
