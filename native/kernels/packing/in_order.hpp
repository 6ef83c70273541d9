// Packing one item after the other.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

enum class Gap : int32_t { kLowest = 0, kTightest = 1 };

// Places items in the given order, each in the lowest or in the tightest gap that it fits between those placed before it
// and those that are fixed, else on top of them. Knows every constraint. O(n^2). Empty when `go_on`, asked now and then, says no.
std::vector<int64_t> pack_in_order(const PackItems& items, std::span<const int32_t> order, Gap gap,
                                   const std::function<bool()>& go_on);

}  // namespace lowtide
