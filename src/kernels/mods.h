// Score mods as a kernel meets them: arguments as strided views, code chosen for its instruction set, and
// functions that run the chain over a tile, forward and backward, and add up what the arguments get. Plain
// code: no kernel template ever sees a mod.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "fovea/attention/mod.h"

namespace fovea::kernels {

/// Of a spec; a plan may add one for its normaliser.
inline constexpr std::size_t max_given_mods = 8, max_mods = max_given_mods + 1;
/// Rows of the mods' buffers are this far apart: a tile of keys and a chunk to spare.
inline constexpr std::int64_t mod_stride = 128 + mod_lanes;

/// Strides of batch, head, query and key; 0 where an axis is shared.
using ModStrides = std::array<std::int64_t, 4>;

template <class T>
struct ModArgument {
  const T* data = nullptr;
  ModStrides strides{};
  ModStrides sizes{1, 1, 1, 1};  ///< of the argument itself: 1 where shared; a table has its entries last
  T* gradient = nullptr;         ///< null: not wanted
  ModStrides gradient_strides{};
};

template <class T>
struct ProblemMod {
  const ModNode* node = nullptr;
  ModCode<T> code;
  std::size_t count = 0;  ///< arguments
  std::array<ModArgument<T>, max_mod_arguments> arguments;
};

template <class T>
struct Problem;

/// The mods of a problem. A plan that only counts bytes gives mods without data. Those that are not there are
/// neither made nor copied: eight empty ones took half of a small call's microsecond.
template <class T>
struct ProblemMods {
  union {
    ProblemMod<T> list[max_mods];
  };
  std::size_t count = 0;

  ProblemMods() {}
  ProblemMods(const ProblemMods& other) { *this = other; }
  ProblemMods& operator=(const ProblemMods& other) {
    if (this == &other) return *this;
    for (count = 0; count < other.count; ++count) std::construct_at(list + count, other.list[count]);
    return *this;
  }
  static_assert(std::is_trivially_destructible_v<ProblemMod<T>>);

  ProblemMod<T>& add() { return *std::construct_at(list + count++); }
  std::span<const ProblemMod<T>> all() const { return {list, count}; }
  bool empty() const { return count == 0; }
  std::size_t most_arguments() const;
  /// A gradient that several batch entries or heads share in every score: they then have to take turns.
  bool shared_dense_gradient(std::int64_t batch, std::int64_t heads) const;
  bool has_arguments() const { return most_arguments() > 0; }
};

/// Rows [row, row + rows) of one head against keys [key, key + count).
struct ModPlace {
  std::int64_t batch = 0, head = 0, row = 0, rows = 0, key = 0, count = 0;
  std::int64_t group = 0;  ///< backward: which group of keys
};

/// What one thread needs, cut from the workspace.
template <class T>
struct ModBuffers {
  T *stages = nullptr, *arguments = nullptr, *d_scores = nullptr, *d_arguments = nullptr;
  std::int64_t rows = 0;
};
/// Elements of each, for blocks of `rows`; all 0 without mods.
struct ModBufferSizes {
  std::int64_t stages = 0, arguments = 0, d_scores = 0, d_arguments = 0;
};
template <class T>
ModBufferSizes mod_buffer_sizes(const ProblemMods<T>& mods, std::int64_t rows, bool backward);

/// scores ← mods(scale·scores), row r of the tile at scores + r·stride. The input of each mod stays in
/// buffers.stages, for mods_gradient.
template <class T>
void apply_mods(const Problem<T>& p, const ModPlace& at, T* scores, std::int64_t stride,
                const ModBuffers<T>& buffers);
/// factors ← weight_mods(1).
template <class T>
void apply_weight_mods(const Problem<T>& p, const ModPlace& at, T* factors, std::int64_t stride,
                       const ModBuffers<T>& buffers);

/// Sums over a call, one region an argument whose gradient is wanted (and not dense).
template <class T>
struct ModSums {
  std::array<std::array<T*, max_mod_arguments>, max_mods> regions{};
};
/// Elements of one region, for `groups` groups of keys (of queries, where p.whole_row).
template <class T>
std::int64_t mod_sum_elements(const Problem<T>& p, const ProblemMod<T>& mod, std::size_t argument,
                              std::int64_t groups);
/// At least the elements of all regions of this problem and every smaller one, where `units` is at least
/// batch · kv_heads · groups.
template <class T>
std::int64_t most_mod_sum_elements(const Problem<T>& p, const ProblemMods<T>& mods, std::int64_t units);

/// Sets what is added to: dense gradients in the caller's tensors, and the sums. `mods` is p.mods or
/// p.weight_mods.
template <class T>
void begin_mod_gradients(const Problem<T>& p, const ProblemMods<T>& mods, const ModSums<T>& sums,
                         std::int64_t groups);
/// d_scores: in, by the result of the chain; out, by the raw score. Adds to the sums of the arguments.
template <class T>
void mods_gradient(const Problem<T>& p, const ModPlace& at, T* d_scores, std::int64_t stride,
                   const ModBuffers<T>& buffers, const ModSums<T>& sums);
/// d_factors: the derivative by the factors; only adds to the sums of the weight mods' arguments.
template <class T>
void weight_mods_gradient(const Problem<T>& p, const ModPlace& at, const T* d_factors, std::int64_t stride,
                          const ModBuffers<T>& buffers, const ModSums<T>& sums);
/// Sums → the caller's tensors, in an order fixed by the shape.
template <class T>
void finish_mod_gradients(const Problem<T>& p, const ProblemMods<T>& mods, const ModSums<T>& sums,
                          std::int64_t groups);

}  // namespace fovea::kernels
