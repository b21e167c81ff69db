#include <iterator>
#include <vector>

#include "kernels/flash/flash.h"
#include "kernels/reference/reference.h"
#include "kernels/tiles/tiles.h"

namespace fovea::kernels {

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
