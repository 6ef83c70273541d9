// Addresses for buffers with live ranges, in one memory space.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

struct PackingInput {
  std::span<const int64_t> first, last;  // half-open live ranges
  std::span<const int64_t> sizes;        // bytes, > 0
  int64_t alignment;                     // every offset is a multiple of it
};

// Largest first, each at the lowest offset of the tightest gap that fits between what it overlaps with in time, else on top.
// Pisarchyk & Lee 2020, "greedy by size". O(n^2).
std::vector<int64_t> pack_greedy_by_size(const PackingInput& input);

// In the order of birth, each in the tightest free block, as an allocator would. O(n log n).
std::vector<int64_t> pack_best_fit_by_birth(const PackingInput& input);

}  // namespace lowtide
