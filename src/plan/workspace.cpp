#include "plan/workspace.h"

#include <memory>
#include <new>
#include <string>

#include "core/huge_pages.h"
#include "fovea/core/error.h"

namespace fovea {

std::span<std::byte> workspace_of(const char* function, std::span<std::byte> given, std::size_t bytes) {
  if (given.data()) {
    void* begin = given.data();
    std::size_t room = given.size();
    if (!std::align(workspace_alignment, bytes, begin, room)) {
      throw InvalidArgument(function, "resources.workspace",
                            std::to_string(bytes + workspace_slack) + " bytes", std::to_string(given.size()));
    }
    return {static_cast<std::byte*>(begin), room};
  }
  struct Arena {
    std::byte* memory = nullptr;
    std::size_t size = 0;
    ~Arena() { release(); }
    void release() { ::operator delete (memory, std::align_val_t{workspace_alignment}); }
  };
  thread_local Arena arena;
  if (arena.size < bytes || !arena.memory) {
    arena.release();
    arena.memory = nullptr;
    arena.size = 0;
    arena.memory = static_cast<std::byte*>(
        ::operator new (bytes + workspace_alignment, std::align_val_t{workspace_alignment}));
    arena.size = bytes + workspace_alignment;
    prefer_huge_pages(arena.memory, arena.size);
  }
  return {arena.memory, arena.size};
}

}  // namespace fovea
