// Packing as an allocator would.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

// Places rectangles as they are born, the larger first of two, each in the tightest free block; none fixed, all pairs that
// are alive together in conflict. O(n log n).
std::vector<int64_t> pack_best_fit_by_birth(const PackItems& items);

}  // namespace lowtide
