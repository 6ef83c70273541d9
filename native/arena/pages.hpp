// Whole pages straight from the system, so that what is freed is gone from resident memory.

#pragma once

#include <cstddef>

namespace lowtide::arena {

// Null where memory is short.
void* map_pages(std::size_t bytes);
void unmap_pages(void* pages, std::size_t bytes);

// Keep the addresses and give the memory back; contents are lost.
void drop_pages(void* pages, std::size_t bytes);

std::size_t whole_pages(std::size_t bytes);

// Move whole pages with their contents to a new address; the old one stays mapped and is empty. Null where the system
// cannot.
void* move_pages_away(void* pages, std::size_t bytes);
// Move such pages to where others are mapped, which they replace; false where the system cannot.
bool move_pages_back(void* pages, std::size_t bytes, void* target);

// Tell AddressSanitizer that nobody may touch these bytes, or that somebody may; nothing in other builds.
void poison(void* begin, std::size_t bytes);
void unpoison(void* begin, std::size_t bytes);

}  // namespace lowtide::arena
