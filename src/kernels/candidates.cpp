#include <vector>

#include "kernels/reference/reference.h"
#include "kernels/tiles.h"

namespace fovea::kernels {

std::span<const KernelTable* const> candidates() {
  static const std::vector<const KernelTable*> list = [] {
    std::vector<const KernelTable*> all(tile_kernels().begin(), tile_kernels().end());
    all.insert(all.end(), flash_kernels().begin(), flash_kernels().end());
    if (const KernelTable* portable = portable_tile_kernel()) all.push_back(portable);
    all.push_back(&reference_kernel());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
