// Which items must not overlap, and by how much one must be above the other.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

// Of two items that lie one above the other, the item's offset is at least other's plus `over`, or other's is at least the
// item's plus `under`.
struct Conflict {
  int32_t other;
  int64_t over, under;
};

struct PackConflicts {
  std::vector<int64_t> rows{0};
  std::vector<Conflict> conflicts;
  // Whether "wholly above or wholly below" are the only ways to place two items; false where one may reach under another,
  // as the low end of a contiguous group does.
  bool only_above_or_below = true;

  std::span<const Conflict> operator[](int32_t item) const {
    return {conflicts.data() + rows[item], static_cast<size_t>(rows[item + 1] - rows[item])};
  }
};

// How far above `below` the item `above` must lie to be clear of it: negative where it reaches under; kNoConflict when they may
// share bytes.
inline constexpr int64_t kNoConflict = INT64_MIN;
int64_t clearance(const PackItems& items, int32_t above, int32_t below);

// O(n^2) for the pairs, plus the pieces of those that meet.
PackConflicts pack_conflicts(const PackItems& items);

}  // namespace lowtide
