// What every order within a budget has in common.
#pragma once
#include <functional>

#include "kernels/search/closure_cut.hpp"

namespace lowtide {

// A graph with more dependencies: the arrays are its own, everything else is borrowed.
struct TightenedGraph {
  GraphView view;
  OwnedRows predecessors, successors;

  explicit TightenedGraph(const GraphView& graph) : view(graph) {}
  TightenedGraph(const TightenedGraph&) = delete;
};

// A dependency that every order within the budget obeys: `op`, one of both, would need too much the other way round.
struct Deduced {
  int32_t op, earlier, later;
};

struct Tightening {
  bool possible = true;      // false: no order stays within the budget
  int32_t over = -1;         // then: the op that needs more than the budget; -1 where dependencies close a cycle
  std::vector<Deduced> deduced;  // in the order in which each follows from those before it
  int64_t next_budget = INT64_MAX;  // least figure above the budget that led to a deduction
  int64_t work = 0;
};

// Adds the dependencies that every order within `budget` bytes of one memory space obeys: when an op v would need more
// while it runs if u ran before it, v comes before u; likewise after. Both excluded means that no order fits. Repeats
// until nothing new follows, `max_work` arcs were looked at, or `go_on` says no.
Tightening tighten(TightenedGraph& graph, int32_t space, bool in_place, int64_t budget,
                   std::span<const int32_t> worst_first, int64_t max_work, const std::function<bool()>& go_on);

// Rebuilds the rows of `graph` with more dependencies, (earlier, later) each; false when that closes a cycle.
bool add_edges(TightenedGraph& graph, const std::vector<std::pair<int32_t, int32_t>>& edges);

}  // namespace lowtide
