// A packing within a capacity, or the proof that there is none.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

enum class PackFit : int32_t { kFound = 0, kImpossible = 1, kStopped = 2 };

struct PackFitResult {
  PackFit fit = PackFit::kStopped;
  std::vector<int64_t> offsets;  // when found
  int64_t work = 0;              // items looked at
};

// Depth first over items at their lowest legal offsets, in ascending (offset, rank): every packing, pushed down, is met in
// that order. Cuts, none of which loses all solutions:
//   floor: per section, the least offset of what is unplaced plus all of its bytes exceeds the capacity;
//   level: the next offset plus the largest unplaced sum of any section exceeds it;
//   gap: an unplaced item would fit wholly below the next offset, so that an earlier choice covers this one;
//   free: an item that nothing unplaced overlaps has no alternatives;
//   split: where no unplaced item crosses from one section to the next, both sides are solved alone, in ranks of their own.
// Three ranks take turns with doubling limits. Ideas: Moffitt 2023 (MiniMalloc). Where items need not
// lie wholly above or below each other (see PackConflicts) and nothing is found, `fit_by_pairs` decides.
PackFitResult fit_capacity(const PackItems& items, int64_t capacity, const PackLimits& limits);

}  // namespace lowtide
