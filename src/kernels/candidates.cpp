#include <iterator>
#include <vector>

#include "kernels/flash/flash.h"
#include "kernels/reference/reference.h"
#include "kernels/tiles/tiles.h"

namespace fovea::kernels {

const char* refuse_other_scores(const Request& r) {
  return r.score == ScoreKind::dot ? nullptr : "its score is not a dot product of query and key";
}

const char* refuse_whole_row(const Request& r) {
  return r.whole_row ? "whole rows of scores are needed" : nullptr;
}

std::span<const Candidate> candidates() {
  static const std::vector<Candidate> list = [] {
    std::vector<Candidate> all = tile_candidates();
    const auto add = [&all](std::vector<Candidate> more) {
      all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    };
    add(flash_candidates());
    add(portable_tile_candidates());
    all.push_back(reference_candidate());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
