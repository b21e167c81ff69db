// The schedule of a block of queries, compared with the mask for each pair.
#include "kernels/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fovea/attention/masks.h"

namespace fovea::testing {
namespace {

using kernels::BlockSchedule;
using kernels::Piece;
using kernels::SpanList;

bool in(const SpanList& spans, std::int64_t key) {
  for (std::int64_t n = 0; n < spans.count; ++n) {
    if (spans.data[n].begin <= key && key < spans.data[n].end) return true;
  }
  return false;
}

constexpr std::int64_t key_len = 200;

std::vector<Mask> masks() {
  return {Everything{},
          Causal{},
          SlidingWindow{.lookback = 30, .lookahead = 10},
          Causal{} & SlidingWindow{.lookback = 7},
          (Causal{} & SlidingWindow{.lookback = 7}) | GlobalTokens{0, 130},
          ~Mask(Causal{}),
          ~Mask(Everything{}),
          Mask(Strided{5}) & Causal{},
          KeyLengths{{150}}};
}

// Keys [begin, end) of a block, in tiles. Every key that some query sees is in exactly one piece. Pieces are
// in order, within a tile and within [begin, end). A piece is only full if all queries see all of it.
TEST(Schedule, HoldsWhatTheMaskAllows) {
  BlockSchedule schedule;
  for (const Mask& mask : masks()) {
    for (const std::int64_t first : {-9, 0, 40, 190}) {
      for (const std::int64_t rows : {1, 6, 48}) {
        for (const auto& [begin, end] :
             {std::pair<std::int64_t, std::int64_t>{0, key_len}, {64, 128}, {64, 161}, {0, 0}}) {
          for (const std::int64_t tile : {32, 128}) {
            const QueryBlock block{.query_begin = first, .query_end = first + rows, .key_len = key_len};
            schedule.build(mask, block, tile, begin, end);
            const std::string name = to_string(mask) + " queries " + std::to_string(first) + "+" +
                                     std::to_string(rows) + " keys " + std::to_string(begin) + "-" +
                                     std::to_string(end);
            const auto allows = [&](std::int64_t row, std::int64_t key) {
              return mask.node().allows(Site::at(0, 0, first + row, key), block);
            };
            std::int64_t next = begin;
            bool partial = false;
            for (std::int64_t n = 0; n < schedule.piece_count(); ++n) {
              const Piece& piece = schedule.pieces()[n];
              ASSERT_LE(next, piece.begin) << name;
              ASSERT_LT(piece.begin, piece.end) << name;
              ASSERT_LE(piece.end, end) << name;
              ASSERT_EQ(piece.begin / tile, (piece.end - 1) / tile) << name;
              partial = partial || !piece.full;
              bool all = true;
              for (std::int64_t key = next; key < piece.begin; ++key) {
                for (std::int64_t r = 0; r < rows; ++r)
                  ASSERT_FALSE(allows(r, key)) << name << ", left out: " << key;
              }
              for (std::int64_t key = piece.begin; key < piece.end; ++key) {
                for (std::int64_t r = 0; r < rows; ++r) all = all && allows(r, key);
              }
              if (piece.full) ASSERT_TRUE(all) << name << ", full: " << piece.begin;
              next = piece.end;
            }
            for (std::int64_t key = next; key < end; ++key) {
              for (std::int64_t r = 0; r < rows; ++r)
                ASSERT_FALSE(allows(r, key)) << name << ", left out: " << key;
            }
            if (!partial) continue;
            // The keys of each row, and the keys that some row sees, are exact.
            for (std::int64_t key = begin; key < end; ++key) {
              bool any = false;
              for (std::int64_t r = 0; r < rows; ++r) {
                ASSERT_EQ(in(schedule.row(r), key), allows(r, key))
                    << name << ", row " << r << ", key " << key;
                any = any || allows(r, key);
              }
              ASSERT_EQ(in(schedule.visible(), key), any) << name << ", key " << key;
            }
          }
        }
      }
    }
  }
}

TEST(Schedule, SlotsFindEveryPlaceThatNamesAHead) {
  const std::vector<std::int64_t> heads{4, 1, 4};
  EXPECT_EQ(kernels::weight_slot({}, 3, 0), 3);   // none named: all heads, each in its own slot
  EXPECT_EQ(kernels::weight_slot({}, 3, 4), -1);  // each head has one slot
  EXPECT_EQ(kernels::weight_slot(heads, 4, 0), 0);
  EXPECT_EQ(kernels::weight_slot(heads, 4, 1), 2);
  EXPECT_EQ(kernels::weight_slot(heads, 4, 3), -1);
  EXPECT_EQ(kernels::weight_slot(heads, 2, 0), -1);
}

}  // namespace
}  // namespace fovea::testing
