#include "core/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace fovea {

void prefer_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = (address + huge_page - 1) / huge_page * huge_page,
                       end = (address + bytes) / huge_page * huge_page;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace fovea
