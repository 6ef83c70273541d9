// What every order within a budget has in common.
#pragma once
#include <functional>

#include "kernels/closure_cut.hpp"

namespace lowtide {

// A graph with more dependencies: the arrays are its own, everything else is borrowed.
struct TightenedGraph {
  GraphView view;
  OwnedRows predecessors, successors;

  explicit TightenedGraph(const GraphView& graph) : view(graph) {}
  TightenedGraph(const TightenedGraph&) = delete;
};

struct Tightening {
  bool possible = true;      // false: no order stays within the budget
  int64_t next_budget = INT64_MAX;  // least figure above the budget that led to a deduction
  int64_t edges = 0, work = 0;
};

// Adds the dependencies that every order within `budget` bytes of one memory space obeys: when an op v would need more
// while it runs if u ran before it, v comes before u; likewise after. Both excluded means that no order fits. Repeats
// until nothing new follows, `max_work` arcs were looked at, or `go_on` says no.
Tightening tighten(TightenedGraph& graph, int32_t space, bool in_place, int64_t budget,
                   std::span<const int32_t> worst_first, int64_t max_work, const std::function<bool()>& go_on);

}  // namespace lowtide
