// A second exact search: plainer and quicker at a placement than `fit_capacity`, and with preferences of its own.
#pragma once
#include "kernels/packing/exact.hpp"

namespace lowtide {

// What may be inferred at a placement, one bit each. None changes an answer; each saves placements.
enum CanonicalInference : int32_t {
  kFloors = 1,         // a section whose unplaced bytes pass the capacity from its least unplaced offset on is a dead end
  kLowestOnly = 2,     // where only one item can be the lowest of a section, the others go above it; needs kFloors
  kNodeCut = 4,        // no choice lies so high that what is unplaced in some section would pass the capacity
  kDominance = 8,      // no choice leaves a gap below it that an unplaced item fits into
  kNoAlternative = 16,  // an item that raises nothing where it lies has no alternatives
  kDecompose = 32,     // parts that no unplaced item joins are solved alone
  kRankParts = 64,     // such a part ranks its items anew, by what remains unplaced in it
  kPushUp = 128,       // what was passed over lies on something that is still unplaced, or nowhere
  kAllInferences = 255
};

// Depth first over items at their least offsets, in ascending (offset, rank): every packing, pushed down, is met in that
// order. Three ranks take turns, with twice the nodes at every turn; `steps` is how long an item lives, in steps of time, as
// sections say nothing about it. For rectangles only, none of them fixed. Ideas: Moffitt 2023 (MiniMalloc).
// O(items + conflicts) a placement; exponentially many in the worst case, so `limits` end it.
PackFitResult fit_canonically(const PackItems& items, std::span<const int64_t> steps, int64_t capacity, int32_t inferences,
                              const PackLimits& limits);

}  // namespace lowtide
