// Why no order stays within a budget, as a log of sets that every order may be made to pass.
#pragma once
#include "kernels/search/refutation.hpp"

namespace lowtide {

// Adds to `lines` a log that refutes a budget of one memory space, under the dependencies of `graph`, which lines before say.
// Walks forward from the start and backward from the end by turns: what may run first, or last, without harm does, which
// ends at a valley; a set that an op fits on neither side of ends a case; else every op that may come next is a case. False
// where `max_work` arcs and looks did not do.
bool refute_by_walk(const GraphView& graph, int32_t space, bool in_place, int64_t budget,
                    std::span<const int32_t> worst_first, int64_t max_work, const std::function<bool()>& go_on,
                    std::vector<RefutationLine>& lines);

}  // namespace lowtide
