// Packing blocks of joined items instead of items.
#pragma once
#include "kernels/packing/blocks.hpp"
#include "kernels/packing/by_priority.hpp"
#include "kernels/packing/exact.hpp"

namespace lowtide {

// Joins items into blocks in ever other ways and searches for a packing of each by both exact searches in turn, with a little
// more work for later ones. Found or stopped: never a proof that there is none. For rectangles only, none of them fixed;
// `joins` are bits of `Join`.
PackFitResult fit_joined(const PackItems& items, int64_t capacity, int32_t joins, const PackLimits& limits);

// The penalty loop over blocks that are joined with no or little doubt. For rectangles only, none of them fixed.
PackResult pack_joined_by_priority(const PackItems& items, int64_t target, const PackLimits& limits);

}  // namespace lowtide
