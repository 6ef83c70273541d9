#include "onnxruntime/pages.hpp"

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace lowtide::onnxruntime {

#if defined(_WIN32)

void* map_pages(std::size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void unmap_pages(void* pages, std::size_t) {
  if (pages != nullptr) VirtualFree(pages, 0, MEM_RELEASE);
}

void drop_pages(void* pages, std::size_t bytes) {
  if (pages != nullptr) VirtualAlloc(pages, bytes, MEM_RESET, PAGE_READWRITE);
}

#else

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

#if defined(__SANITIZE_ADDRESS__)
void poison(void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
void unpoison(void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
void poison(void*, std::size_t) {}
void unpoison(void*, std::size_t) {}
#endif

}  // namespace lowtide::onnxruntime
