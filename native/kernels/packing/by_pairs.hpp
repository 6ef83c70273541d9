// Exact packing where an item may reach under another.
#pragma once
#include "kernels/packing/exact.hpp"

namespace lowtide {

// Decides pair by pair which of two items gives way. The differences of offsets that two items cannot have are open
// intervals; a packing has every difference at or below, or at or above each of them. A node raises least and lowers greatest
// offsets until all decisions hold, decides what only one side is left for, and branches on the interval that the least
// offsets are in; where they are in none, they are a packing. Depth first; complete for every kind of item. Idea: the
// disjunctive graph of scheduling (Roy & Sussmann 1964).
PackFitResult fit_by_pairs(const PackItems& items, int64_t capacity, const PackLimits& limits);

}  // namespace lowtide
