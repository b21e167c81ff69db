// Score mods as a kernel calls them: their arguments as strided views, and the function of each mod that is
// compiled for the right instruction set. Functions here run the chain of mods over a tile of scores, forward
// and backward, and add up the gradients of the arguments. This is plain code: no template of a kernel ever
// sees a mod.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "fovea/attention/make_mod.h"
#include "fovea/core/executor.h"

namespace fovea::kernels {

/// The mods of a spec; a plan may add one for its normaliser.
inline constexpr std::size_t max_given_mods = 8, max_mods = max_given_mods + 1;
/// The row stride of the mods' buffers: the 128 keys of a tile and mod_lanes to spare.
inline constexpr std::int64_t mod_stride = 128 + mod_lanes;

/// Strides of batch, head, query and key; 0 where an axis is shared.
using ModStrides = std::array<std::int64_t, 4>;

template <class T>
struct ModArgument {
  const T* data = nullptr;
  ModStrides strides{};
  ModStrides sizes{1, 1, 1, 1};  ///< of the argument itself: 1 where an axis is shared; the last axis of a
                                 ///< table is that of its entries
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

/// The mods of a problem. A plan that only counts bytes gives mods without data. Only the mods that are there
/// are constructed and copied: eight empty ones took half of the microsecond that a small call takes.
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
  /// Whether several batch entries or heads add to the same elements of a gradient with an element per score.
  /// They then have to take turns.
  bool shared_dense_gradient(std::int64_t batch, std::int64_t heads) const;
};

/// Rows [row, row + rows) of one head against keys [key, key + count).
struct ModPlace {
  std::int64_t batch = 0, head = 0, row = 0, rows = 0, key = 0, count = 0;
  std::int64_t group = 0;  ///< backward: the group of keys, or of queries where Problem::whole_row
};

/// The buffers of one thread, cut from the workspace.
template <class T>
struct ModBuffers {
  T *stages = nullptr, *arguments = nullptr, *d_scores = nullptr, *d_arguments = nullptr;
  std::int64_t rows = 0;
};
/// The elements of each buffer for blocks of `rows` rows; all 0 without mods.
struct ModBufferSizes {
  std::int64_t stages = 0, arguments = 0, d_scores = 0, d_arguments = 0;
};
template <class T>
ModBufferSizes mod_buffer_sizes(const ProblemMods<T>& mods, std::int64_t rows, bool backward);

/// scores ← mods(scale·scores), with row r of the tile at scores + r·stride. The input of each mod stays in
/// buffers.stages, for mods_gradient.
template <class T>
void apply_mods(const Problem<T>& p, const ModPlace& at, T* scores, std::int64_t stride,
                const ModBuffers<T>& buffers);
/// factors ← weight_mods(1).
template <class T>
void apply_weight_mods(const Problem<T>& p, const ModPlace& at, T* factors, std::int64_t stride,
                       const ModBuffers<T>& buffers);

/// Gradients of the mods' arguments, summed over a call: one region for each argument whose gradient is
/// wanted. A dense gradient has no region: it is added to the caller's tensor at once.
template <class T>
struct ModSums {
  std::array<std::array<T*, max_mod_arguments>, max_mods> regions{};
};
/// The elements of one region, for `groups` groups of keys (of queries, where p.whole_row).
template <class T>
std::int64_t mod_sum_elements(const Problem<T>& p, const ProblemMod<T>& mod, std::size_t argument,
                              std::int64_t groups);
/// An upper bound of the elements of all regions, for this problem and every smaller one. `units` is at least
/// batch · kv_heads · groups.
template <class T>
std::int64_t most_mod_sum_elements(const Problem<T>& p, const ProblemMods<T>& mods, std::int64_t units);

/// Sets to 0 what gradients are added to: the regions of `sums`, and dense gradients in the caller's tensors.
/// `mods` is p.mods or p.weight_mods.
template <class T>
void begin_mod_gradients(const Problem<T>& p, const ProblemMods<T>& mods, const ModSums<T>& sums,
                         std::int64_t groups, Executor& executor);
/// d_scores holds the derivative by the result of the chain, and then the derivative by the raw score. Adds
/// to the sums of the arguments.
template <class T>
void mods_gradient(const Problem<T>& p, const ModPlace& at, T* d_scores, std::int64_t stride,
                   const ModBuffers<T>& buffers, const ModSums<T>& sums);
/// d_factors: the derivative by the factors. Only adds to the sums of the weight mods' arguments.
template <class T>
void weight_mods_gradient(const Problem<T>& p, const ModPlace& at, const T* d_factors, std::int64_t stride,
                          const ModBuffers<T>& buffers, const ModSums<T>& sums);
/// Adds the regions up into the caller's tensors, in an order that the shape alone decides.
template <class T>
void finish_mod_gradients(const Problem<T>& p, const ProblemMods<T>& mods, const ModSums<T>& sums,
                          std::int64_t groups, Executor& executor);

}  // namespace fovea::kernels
