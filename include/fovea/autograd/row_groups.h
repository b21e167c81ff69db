// Operations that make fewer rows of a sequence: learned sums of rows, and means of groups of rows. The
// layers that use them are in nn/compression.h and nn/blocks.h.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/autograd/var.h"
#include "fovea/core/kept_vector.h"

namespace fovea::autograd {

/// Row i of entry b is Σ_j weight[i, j]·x[b, j] over the first lengths[b] rows of x; without `lengths` over
/// all L. weight [kept, M] with M >= L, x [B, L, D] -> [B, kept, D]. Columns from L on are not read. Throws
/// InvalidArgument for other shapes, and for a length outside [0, L].
Var mix_rows(const Var& weight, const Var& x, std::span<const std::int64_t> lengths = {});

/// Which rows of a batch become one row. Every row of an entry is in one group of the entry.
struct RowGroups {
  std::int64_t batch = 0, rows = 0;     ///< of the tensor whose rows are grouped, [batch, rows, D]
  std::int64_t kept = 0;                ///< groups of the entry that has most
  KeptVector<std::int64_t> group = {};  ///< [batch · rows], in [0, kept); -1: behind the length of its entry
  KeptVector<float> share = {};         ///< [batch · rows]: the row's size over that of its group
  KeptVector<std::int64_t> lengths = {};  ///< [batch]: groups of each entry
  Tensor sizes = {};                      ///< [batch, kept]: of each group; 1 where an entry has fewer groups
};

/// Groups of `size` neighbours. The last group of an entry may have fewer. Throws InvalidArgument for a size
/// below 1, and for a length outside [0, rows].
RowGroups neighbour_groups(std::int64_t batch, std::int64_t rows, std::int64_t size,
                           std::span<const std::int64_t> lengths = {});

/// The groups of token merging by bipartite soft matching (Bolya et al. 2022, arXiv 2210.09461, section 3).
/// Rows 0, 2, 4, ... of an entry are proposed to rows 1, 3, 5, ...: each to the one with the largest cosine
/// of `metric` [B, L, D], of equals to the first. The ⌊share · length⌋ pairs with the largest cosines are
/// merged, and other rows stay alone. Groups have the order of the rows that stay. `sizes` [B, L] says for
/// how many rows each row stands; without it each stands for one. The choice has no gradient. Time grows with
/// L²·D / 2, memory with L. Throws InvalidArgument for a share outside [0, 0.5] and for other shapes.
RowGroups matched_groups(const Tensor& metric, double share, const Tensor& sizes = {},
                         std::span<const std::int64_t> lengths = {});

/// The natural logarithms of the sizes, [batch, kept]. Attention adds them to the scores of merged rows, so
/// that a row counts as often as the rows that it stands for (the same paper, equation 1).
Tensor log_sizes(const RowGroups& groups);

/// The mean of each group's rows, weighted by their sizes: x [B, L, D] -> [B, kept, D]. Rows behind an
/// entry's last group are 0.
Var merge_rows(const Var& x, const RowGroups& groups);
/// Each row gets the row of its group: y [B, kept, D] -> [B, L, D]. Rows that are in no group are 0.
Var spread_rows(const Var& y, const RowGroups& groups);

}  // namespace fovea::autograd
