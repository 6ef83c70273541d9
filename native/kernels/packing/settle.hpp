// Items of a packing moved down, so that the gaps between them come together at the top.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

// Moves every placed item down as far as those below it allow, the lowest first; -1 is not placed. No item moves up, so the
// packing grows no higher. For rectangles only, none of them fixed. O(n log n).
void settle(const PackItems& items, std::vector<int64_t>& offsets);

}  // namespace lowtide
