// Depth-first post-orders without recursion, so that a chain of a million ops costs no stack.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

// Visits `starts` in turn, each op after everything in its row of `before`, rows from left to right. O(n + e).
std::vector<int32_t> post_order(const Rows& before, std::span<const int32_t> starts);

// The predecessors of every op, each row sorted as in `ranked` (all ops, first is visited first). O(n + e).
OwnedRows predecessors_as_ranked(const GraphView& graph, std::span<const int32_t> ranked);

}  // namespace lowtide
