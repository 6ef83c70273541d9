// Many packings by priority, each learning from the overflow of the one before.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

struct PackResult {
  std::vector<int64_t> offsets;
  int64_t height = INT64_MAX;
  int64_t work = 0;  // items looked at, roughly, over all packings
  int32_t rounds = 0;
};

// First tries ten orders: six by the most live bytes an item meets, its width, area and size, and four that take the items of
// the fullest section first, by birth or death, or by size before that. Then a penalty loop: sections where a packing passes
// `target` add to the priority of the items alive in them, and the items are placed anew; after 30 rounds without a better
// packing (4 when the last four orders are new) the penalties are forgotten and another order comes under them. Ends at
// `target` bytes or when the work is used up, and at once after the first orders where `improve` is false. Places along the
// skyline (skyline.hpp) where it can, else in order of priority (in_order.hpp).
PackResult pack_by_priority(const PackItems& items, int64_t target, bool improve, const PackLimits& limits);

}  // namespace lowtide
