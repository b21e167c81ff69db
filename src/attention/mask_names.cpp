#include "attention/mask_names.h"

#include <limits>

#include "fovea/attention/masks.h"
#include "fovea/attention/streaming_sinks.h"

namespace fovea {
namespace {

constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
using Numbers = std::vector<std::int64_t>;

constexpr MaskName names[] = {
    {"everything", "", 0, 0, [](const Numbers&) -> Mask { return Everything{}; }},
    {"causal", "", 0, 0, [](const Numbers&) -> Mask { return Causal{}; }},
    {"window", "lookback, lookahead", 2, 2,
     [](const Numbers& n) -> Mask {
       return SlidingWindow{n[0], n[1]};
     }},
    {"global", "positions", 0, any, [](const Numbers& n) -> Mask { return GlobalTokens(n); }},
    {"lengths", "a length a batch entry, or none", 0, any,
     [](const Numbers& n) -> Mask { return KeyLengths{n}; }},
    {"prefix", "a length, or one a batch entry", 1, any, [](const Numbers& n) -> Mask { return Prefix{n}; }},
    {"sinks", "a count", 1, 1, [](const Numbers& n) -> Mask { return StreamingSinks{n[0]}; }},
    {"documents", "boundaries", 0, any, [](const Numbers& n) -> Mask { return Documents{n}; }},
    {"chunked", "a size", 1, 1, [](const Numbers& n) -> Mask { return Chunked{n[0]}; }},
    {"strided", "a stride", 1, 1, [](const Numbers& n) -> Mask { return Strided{n[0]}; }},
    {"dilated", "lookback, lookahead, step", 3, 3,
     [](const Numbers& n) -> Mask {
       return Dilated{n[0], n[1], n[2]};
     }},
    {"blocks", "size, columns, a bit a block", 2, any,
     [](const Numbers& n) -> Mask {
       return BlockTable{n[0], n[1], std::vector<bool>(n.begin() + 2, n.end())};
     }},
    {"bigbird", "length, size, window, global, random, seed", 6, 6,
     [](const Numbers& n) -> Mask {
       return BigBird{n[0], n[1], n[2], n[3], n[4], static_cast<std::uint64_t>(n[5])};
     }},
    {"tree", "a parent a position", 0, any, [](const Numbers& n) -> Mask { return Tree{n}; }},
    {"groups", "a group a position", 0, any, [](const Numbers& n) -> Mask { return Groups{n}; }},
};

}  // namespace

std::span<const MaskName> mask_names() {
  return names;
}

}  // namespace fovea
