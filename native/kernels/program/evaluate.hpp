// The peak of an order, and the in-place pairs that are taken in it.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

struct InPlacePair {
  int32_t op, read, written;
};

struct Evaluation {
  std::vector<int64_t> peaks;        // per space
  std::vector<int32_t> peak_places;  // per space: first position that reaches it, -1 before the first op
  std::vector<InPlacePair> pairs;    // in run order
  std::vector<int64_t> profile;      // per position and space, row by row: live bytes while that op runs
};

// Walk `order` (a valid topological order of all ops) with frees at last use: O(n + e), plus the in-place matching.
// At each op the pairs whose read buffer dies there are matched for the most bytes saved.
Evaluation evaluate(const GraphView& graph, std::span<const int32_t> order, bool in_place, bool with_profile = false);

}  // namespace lowtide
