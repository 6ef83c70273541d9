// Ops that every order runs at the same place.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

// Per op, whether it is an ancestor or a descendant of every other op. O(n + e).
std::vector<uint8_t> comparable_with_all(const GraphView& graph);

}  // namespace lowtide
