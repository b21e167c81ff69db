// Masks beyond the five of mask.h. Each is a struct whose comment says when key j is visible to a query at
// position p, and a to_mask, which lets it stand in an expression with `&`, `|` and `~`. Their text forms are
// in src/attention/mask_names.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/predicate.h"

namespace fovea {

/// j < length or j <= p: a prefix that everybody sees, causal behind it (prefix LM; Raffel et al. 2020, arXiv
/// 1910.10683). One length for all, or one a batch entry. `prefix(3)`.
struct Prefix {
  std::vector<std::int64_t> lengths;
};

/// p and j lie in the same document; document d is [boundaries[d], boundaries[d + 1]), as the cumulative
/// lengths of packed sequences say it ("cu_seqlens"). Positions outside all documents see nothing and are not
/// seen. `documents(0,5,9)`.
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

/// j = p + k·step with -lookback <= k <= lookahead: a window with holes. `dilated(LOOKBACK,LOOKAHEAD,STEP)`.
struct Dilated {
  std::int64_t lookback = 0;
  std::int64_t lookahead = SlidingWindow::unlimited;
  std::int64_t step = 1;
};

/// Bit (floor(p / size), floor(j / size)) of a table, row-major; what lies outside the table is hidden.
/// `blocks(SIZE,COLUMNS,BIT,...)`.
struct BlockTable {
  std::int64_t size = 1, columns = 0;
  std::vector<bool> visible;
};

/// The block table of BigBird (Zaheer et al. 2020, arXiv 2007.14062): a window of `window` blocks to either
/// side, the first `global` blocks seen by all and seeing all, and `random` more blocks a row, drawn by
/// `seed`. Queries and keys are `length` positions each. `bigbird(LENGTH,SIZE,WINDOW,GLOBAL,RANDOM,SEED)` is
/// read, and printed as the table it makes.
struct BigBird {
  std::int64_t length = 0, size = 64;
  std::int64_t window = 1, global = 1, random = 3;
  std::uint64_t seed = 0;
};
BlockTable block_table(const BigBird& pattern);

/// j is p or an ancestor of p. parents[i] <= i; a root is its own parent. For speculative decoding and trees
/// of thoughts. `tree(0,0,0,1)`.
struct Tree {
  std::vector<std::int64_t> parents;
};

/// groups[j] <= groups[p]: bidirectional inside a group, causal from group to group. A vision-language-action
/// policy has group 0 for image and instruction and one group for each action. Positions outside see nothing
/// and are not seen. `groups(0,0,0,1,2)`.
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
