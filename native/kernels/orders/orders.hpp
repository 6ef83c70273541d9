// The orders of five systems; each returns every op once, in a valid topological order. No recursion anywhere.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

using Order = std::vector<int32_t>;

// Mesh-TensorFlow: most bytes freed next. `name_ranks` breaks ties. Given what every op reads, twice what it reads
// twice, the original's defects are kept: such an op frees it twice, and what an op reads counts as freed by its last
// user if the op's last output is freed, whatever happens to the input. O((n + e) log n).
Order mesh_list(const GraphView& graph, std::span<const int32_t> name_ranks, const Rows* original_reads = nullptr);

// XLA: most bytes freed minus bytes defined next, then most users, then newest. O((n + e) log n).
Order xla_list(const GraphView& graph);

// XLA: depth-first post-order from the sinks, operands in the order they are read. O(n + e).
Order xla_postorder(const GraphView& graph, const Rows& reads);

// XLA: depth-first post-order, operands by falling extra users, then cumulative size, then name. O(n log n + e).
Order xla_dfs(const GraphView& graph, const Rows& reads, std::span<const int32_t> name_ranks);

// Inductor: least peak memory first. `threshold` in bytes, 0 switches the successor rule off. O((n + e) log n).
Order lpmf(const GraphView& graph, int64_t threshold);

// Inductor: the op whose predecessors ran earliest next. O((n + e) log n).
Order bfs(const GraphView& graph);

// Inductor: ops by rising bytes read and written, each after what it depends on. O(n log n + e).
Order dfs(const GraphView& graph);

// memonger: sources with the longest path to the end first, ties as they fall there. Where its paths make no tree,
// or after `max_work` looks at an edge: `longest_path_merged`. O(s n e) at worst for s sources, as a rule one walk of
// what is after each.
Order longest_path(const GraphView& graph, int64_t max_work);

// The same rule on paths that always merge, ties in program order. O(n log n + e).
Order longest_path_merged(const GraphView& graph);

}  // namespace lowtide
