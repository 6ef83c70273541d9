#include "arena/pages.hpp"

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace lowtide::arena {

#if defined(_WIN32)

void* map_pages(std::size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void unmap_pages(void* pages, std::size_t) {
  if (pages != nullptr) VirtualFree(pages, 0, MEM_RELEASE);
}

void drop_pages(void* pages, std::size_t bytes) {
  if (pages != nullptr) VirtualAlloc(pages, bytes, MEM_RESET, PAGE_READWRITE);
}

std::size_t whole_pages(std::size_t bytes) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return (bytes + info.dwPageSize - 1) / info.dwPageSize * info.dwPageSize;
}

#else

std::size_t whole_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* map_pages(std::size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void unmap_pages(void* pages, std::size_t bytes) {
  if (pages == nullptr) return;
  unpoison(pages, bytes);  // the addresses may be mapped again by somebody else
  munmap(pages, bytes);
}

void drop_pages(void* pages, std::size_t bytes) {
  if (pages != nullptr) madvise(pages, bytes, MADV_DONTNEED);
}

#endif

#if defined(__linux__) && defined(MREMAP_DONTUNMAP)

void* move_pages_away(void* pages, std::size_t bytes) {
  void* moved = mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  return moved == MAP_FAILED ? nullptr : moved;
}

bool move_pages_back(void* pages, std::size_t bytes, void* target) {
  return mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED;
}

#else

void* move_pages_away(void*, std::size_t) { return nullptr; }
bool move_pages_back(void*, std::size_t, void*) { return false; }

#endif

#if defined(__SANITIZE_ADDRESS__)
void poison(void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
void unpoison(void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
void poison(void*, std::size_t) {}
void unpoison(void*, std::size_t) {}
#endif

}  // namespace lowtide::arena
