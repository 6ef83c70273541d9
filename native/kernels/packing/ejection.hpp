// Repair of a packing that is too high, by pushing items out and placing them again.
#pragma once
#include "kernels/packing/exact.hpp"

namespace lowtide {

// Starts from `offsets`, settled; items above the capacity wait, as do those at -1. One that waits, drawn at random by `seed`,
// is placed where the items in its way weigh least together; those wait then. An item that pushes others out grows heavier.
// Tries of growing length begin at the packing in which the least area waits. Items of tight sections weigh more at first. A
// packing that fits is settled, too. Never kImpossible. For rectangles only, none of them fixed. Source: ejection chains
// (Glover 1996) with growing penalties (Nagata & Braeysy 2009). O(k) a placement with k conflicts.
PackFitResult fit_by_ejection(const PackItems& items, int64_t capacity, std::span<const int64_t> offsets, uint64_t seed,
                              const PackLimits& limits);

}  // namespace lowtide
