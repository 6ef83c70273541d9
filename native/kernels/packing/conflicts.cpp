#include "kernels/packing/conflicts.hpp"

namespace lowtide {
int64_t clearance(const PackItems& items, int32_t above, int32_t below) {
  if (items.rectangles()) {
    const bool together = items.first[below] < items.last[above] && items.first[above] < items.last[below];
    return together ? items.sizes[below] : kNoConflict;
  }
  int64_t least = kNoConflict;
  for (const Piece& upper : items.pieces_of(above))
    for (const Piece& lower : items.pieces_of(below))
      if (items.conflict(upper, lower)) least = std::max(least, lower.high - upper.low);
  return least;
}

PackConflicts pack_conflicts(const PackItems& items) {
  PackConflicts result;
  if (items.rectangles()) {  // as below, without a call for every pair
    for (int32_t i = 0; i < items.n(); ++i) {
      for (int32_t j = 0; j < items.n(); ++j)
        if (i != j && items.first[j] < items.last[i] && items.first[i] < items.last[j])
          result.conflicts.push_back({j, items.sizes[j], items.sizes[i]});
      result.rows.push_back(static_cast<int64_t>(result.conflicts.size()));
    }
    return result;
  }
  for (const Piece& piece : items.pieces) result.only_above_or_below &= piece.low == 0;
  for (int32_t i = 0; i < items.n(); ++i) {
    for (int32_t j = 0; j < items.n(); ++j) {
      if (i == j) continue;
      if (const int64_t over = clearance(items, i, j); over != kNoConflict) result.conflicts.push_back({j, over, clearance(items, j, i)});
    }
    result.rows.push_back(static_cast<int64_t>(result.conflicts.size()));
  }
  return result;
}

}  // namespace lowtide
