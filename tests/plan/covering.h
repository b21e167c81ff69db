// Pairwise covering arrays: few rows in which every two levels of every two factors occur together. Most
// faults come from two causes that meet. Greedy, one row at a time (AETG; Cohen et al. 1997, IEEE TSE 23(7)).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "fovea/core/philox.h"

namespace fovea::testing {

/// One level a factor, counted from 0.
using CoveringRow = std::vector<int>;

/// Whether level `i` of factor `a` is compatible with level `j` of factor `b`; called with a < b. Empty:
/// always.
using Compatible = std::function<bool(int a, int i, int b, int j)>;

class Covering {
 public:
  Covering(std::vector<int> levels, const Compatible& compatible, std::uint64_t seed)
      : levels_(std::move(levels)), random_(seed) {
    for (const int count : levels_) {
      first_.push_back(total_);
      total_ += count;
    }
    state_.assign(static_cast<std::size_t>(total_) * total_, State::uncovered);
    for (int a = 0; a < factors(); ++a) {
      for (int b = a + 1; b < factors(); ++b) {
        for (int i = 0; i < levels_[a]; ++i) {
          for (int j = 0; j < levels_[b]; ++j) {
            if (compatible && !compatible(a, i, b, j)) state(a, i, b, j) = State::forbidden;
          }
        }
      }
    }
  }

  std::vector<CoveringRow> rows() {
    constexpr int candidates = 30;
    std::vector<CoveringRow> rows;
    for (CoveringRow start; next_uncovered(start);) {
      CoveringRow best;
      int most = 0;
      for (int n = 0; n < candidates; ++n) {
        CoveringRow row = start;
        if (!complete(row, unset_factors(row), 0)) break;  // no row can contain this pair
        const int gain = cover(row, State::uncovered);
        if (gain > most) {
          most = gain;
          best = row;
        }
      }
      if (best.empty()) {
        forbid(start);
        continue;
      }
      cover(best, State::covered);
      rows.push_back(best);
    }
    return rows;
  }

 private:
  enum class State : char { uncovered, covered, forbidden };

  int factors() const { return static_cast<int>(levels_.size()); }
  State& state(int a, int i, int b, int j) {
    if (a > b) return state(b, j, a, i);
    return state_[static_cast<std::size_t>(first_[a] + i) * total_ + first_[b] + j];
  }

  // The first uncovered pair, in a row that is otherwise unset (-1).
  bool next_uncovered(CoveringRow& row) {
    for (int a = 0; a < factors(); ++a) {
      for (int b = a + 1; b < factors(); ++b) {
        for (int i = 0; i < levels_[a]; ++i) {
          for (int j = 0; j < levels_[b]; ++j) {
            if (state(a, i, b, j) != State::uncovered) continue;
            row.assign(levels_.size(), -1);
            row[a] = i;
            row[b] = j;
            return true;
          }
        }
      }
    }
    return false;
  }

  std::vector<int> unset_factors(const CoveringRow& row) {
    std::vector<int> order;
    for (int factor = 0; factor < factors(); ++factor) {
      if (row[factor] < 0)
        order.insert(order.begin() + random_.next_below(static_cast<std::uint32_t>(order.size() + 1)),
                     factor);
    }
    return order;
  }

  // The number of new pairs that a level adds to a row; -1 if the level is not compatible.
  int gain_of(const CoveringRow& row, int factor, int level) {
    int gain = 0;
    for (int other = 0; other < factors(); ++other) {
      if (other == factor || row[other] < 0) continue;
      const State at = state(factor, level, other, row[other]);
      if (at == State::forbidden) return -1;
      gain += at == State::uncovered;
    }
    return gain;
  }

  // Each factor in turn takes the level that adds most pairs, by chance among equals. Backtracks where no
  // level is compatible.
  bool complete(CoveringRow& row, const std::vector<int>& order, std::size_t depth) {
    if (depth == order.size()) return true;
    const int factor = order[depth];
    std::vector<std::pair<std::int64_t, int>> choices;
    for (int level = 0; level < levels_[factor]; ++level) {
      const std::int64_t gain = gain_of(row, factor, level);
      if (gain >= 0) choices.emplace_back(gain << 32 | random_.next_u32(), level);
    }
    std::sort(choices.rbegin(), choices.rend());
    for (const auto& [gain, level] : choices) {
      row[factor] = level;
      if (complete(row, order, depth + 1)) return true;
    }
    row[factor] = -1;
    return false;
  }

  // The number of pairs of a full row that were uncovered; they become `mark`.
  int cover(const CoveringRow& row, State mark) {
    int gain = 0;
    for (int a = 0; a < factors(); ++a) {
      for (int b = a + 1; b < factors(); ++b) {
        State& at = state(a, row[a], b, row[b]);
        gain += at == State::uncovered;
        at = mark == State::covered ? mark : at;
      }
    }
    return gain;
  }

  void forbid(const CoveringRow& pair) {
    int a = 0, b = factors() - 1;
    while (pair[a] < 0) ++a;
    while (pair[b] < 0) --b;
    state(a, pair[a], b, pair[b]) = State::forbidden;
  }

  std::vector<int> levels_, first_;
  int total_ = 0;
  std::vector<State> state_;
  PhiloxStream random_;
};

/// Rows that together contain every pair that occurs in some row of compatible levels. A function of its
/// arguments.
inline std::vector<CoveringRow> covering_array(const std::vector<int>& levels,
                                               const Compatible& compatible = {}, std::uint64_t seed = 1) {
  return Covering(levels, compatible, seed).rows();
}

}  // namespace fovea::testing
