// Masks beyond the five of mask.h. Each is a struct; its comment says when key j is visible to a query at
// position p. Its to_mask makes it usable in expressions with `&`, `|` and `~`. The text forms are in
// src/attention/mask_names.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/predicate.h"

namespace fovea {

/// j < length or j <= p: all queries see a prefix, and behind it the mask is causal (prefix LM; Raffel et al.
/// 2020, arXiv 1910.10683). One length for all, or one a batch entry. `prefix(3)`.
struct Prefix {
  std::vector<std::int64_t> lengths;
};

/// p and j lie in the same document. Document d is [boundaries[d], boundaries[d + 1]): these are the
/// cumulative lengths of packed sequences ("cu_seqlens"). Positions outside all documents see nothing and are
/// not seen. `documents(0,5,9)`.
struct Documents {
  std::vector<std::int64_t> boundaries;
};

/// floor(p / size) = floor(j / size). `chunked(64)`.
struct Chunked {
  std::int64_t size = 1;
};

/// p - j is a multiple of stride (Child et al. 2019, arXiv 1904.10509). `strided(8)`.
struct Strided {
  std::int64_t stride = 1;
};

/// j = p + k·step with -lookback <= k <= lookahead: a window with gaps. `dilated(LOOKBACK,LOOKAHEAD,STEP)`.
struct Dilated {
  std::int64_t lookback = 0;
  std::int64_t lookahead = SlidingWindow::unlimited;
  std::int64_t step = 1;
};

/// Bit (floor(p / size), floor(j / size)) of a row-major table. Pairs outside the table are hidden.
/// `blocks(SIZE,COLUMNS,BIT,...)`.
struct BlockTable {
  std::int64_t size = 1, columns = 0;
  std::vector<bool> visible;
};

/// The block table of BigBird (Zaheer et al. 2020, arXiv 2007.14062). Each row has a window of `window`
/// blocks to either side and `random` more blocks, drawn by `seed`. All rows see the first `global` blocks,
/// which see all. Queries and keys are `length` positions each.
/// `bigbird(LENGTH,SIZE,WINDOW,GLOBAL,RANDOM,SEED)` is read; it is printed as the block table that it makes.
struct BigBird {
  std::int64_t length = 0, size = 64;
  std::int64_t window = 1, global = 1, random = 3;
  std::uint64_t seed = 0;
};
BlockTable block_table(const BigBird& pattern);

/// j is p or an ancestor of p. parents[i] <= i; a root is its own parent. For speculative decoding and trees
/// of thoughts. Positions outside the list see nothing and are not seen. `tree(0,0,0,1)`.
struct Tree {
  std::vector<std::int64_t> parents;
};

/// groups[j] <= groups[p]: bidirectional inside a group, causal from group to group. A vision-language-action
/// policy has group 0 for image and instruction and one group for each action. Positions outside the list see
/// nothing and are not seen. `groups(0,0,0,1,2)`.
struct Groups {
  std::vector<std::int64_t> groups;
};

Mask to_mask(const Prefix& prefix);
Mask to_mask(const Documents& documents);
Mask to_mask(const Chunked& chunked);
Mask to_mask(const Strided& strided);
Mask to_mask(const Dilated& dilated);
Mask to_mask(const BlockTable& table);
Mask to_mask(const BigBird& pattern);
Mask to_mask(const Tree& tree);
Mask to_mask(const Groups& groups);

}  // namespace fovea
