#include <vector>

#include "kernels/flash.h"
#include "kernels/reference/reference.h"

namespace fovea::kernels {

std::span<const KernelTable* const> candidates() {
  static const std::vector<const KernelTable*> list = [] {
    std::vector<const KernelTable*> all(flash_kernels().begin(), flash_kernels().end());
    all.push_back(&reference_kernel());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
