// The allocator of the process: counted blocks, each at the place that the thread's run has for it, or on the heap.

#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::arena {

// Null where memory is short. Data is aligned to 64 bytes.
void* allocate(std::size_t size);

// Free a block from any thread; null is nothing.
void release(void* data);

std::int64_t live_bytes();
std::int64_t peak_bytes();
void restart_peak();

// What a block takes beyond its data: bytes for so much data.
std::size_t block_bytes(std::size_t size);

}  // namespace lowtide::arena
