// The best order of a graph that is a forest of in-trees.
#pragma once
#include <vector>

#include "kernels/program/graph_view.hpp"

namespace lowtide {

// An order of least peak, or nothing when the graph is not of the kind: one memory space, every op has at most one
// successor, and every buffer that is freed has at most one user. Then what an op adds while it runs and what it leaves
// behind do not depend on the order, scratch and in-place pairs included.
//
// Exact: Liu, "An application of generalized tree pebbling to sparse matrix factorization" (1987), in the general form
// of Abdel-Wahab and Kameda (1978) that also lets ops free more than they allocate. The best orders of an op's operands
// are cut into segments that nothing should interrupt; merged by what makes them urgent, they and the op itself are cut
// anew. Segments of a subtree lie in a leftist heap, the last to run on top: O(n log n).
std::vector<int32_t> tree_order(const GraphView& graph, bool in_place);

}  // namespace lowtide
