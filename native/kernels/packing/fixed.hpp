// Items that are where they must be, as obstacles to the others.
#pragma once
#include "kernels/packing/conflicts.hpp"

namespace lowtide {

class FixedItems {
 public:
  FixedItems(const PackItems& items, const PackConflicts& conflicts) : alignment_(items.alignment) {
    if (std::all_of(items.fixed.begin(), items.fixed.end(), [](int64_t at) { return at < 0; })) return;
    blocked_.resize(items.n());
    for (int32_t i = 0; i < items.n(); ++i)
      if (items.fixed[i] < 0)
        for (const Conflict& conflict : conflicts[i])
          if (const int64_t at = items.fixed[conflict.other]; at >= 0)
            blocked_[i].push_back({at - conflict.under, at + conflict.over});
  }

  // The lowest offset >= `offset` that is aligned and clear of fixed items.
  int64_t lowest_legal(int32_t item, int64_t offset) const {
    offset = aligned(offset, alignment_[item]);
    if (blocked_.empty()) return offset;
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [below, above] : blocked_[item])
        if (below < offset && offset < above) {
          offset = aligned(above, alignment_[item]);
          moved = true;
        }
    }
    return offset;
  }

 private:
  std::span<const int64_t> alignment_;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> blocked_;  // per item, open intervals it cannot have
};

}  // namespace lowtide
