// Whole pages straight from the system, so that what is freed is gone from resident memory.

#pragma once

#include <cstddef>

namespace lowtide::onnxruntime {

// Null where memory is short.
void* map_pages(std::size_t bytes);
void unmap_pages(void* pages, std::size_t bytes);

// Keep the addresses and give the memory back; contents are lost.
void drop_pages(void* pages, std::size_t bytes);

// Tell AddressSanitizer that nobody may touch these bytes, or that somebody may; nothing in other builds.
void poison(void* begin, std::size_t bytes);
void unpoison(void* begin, std::size_t bytes);

}  // namespace lowtide::onnxruntime
