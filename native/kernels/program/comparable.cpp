#include "kernels/program/comparable.hpp"

#include <algorithm>

namespace lowtide {

// In a topological order, everything before place k is an ancestor of the op there exactly if everything before it has a
// successor at or before k; everything after it is a descendant exactly if it has a predecessor at or after k.
std::vector<uint8_t> comparable_with_all(const GraphView& graph) {
  const int32_t n = graph.n_ops;
  std::vector<int32_t> waiting(n), order, place(n);
  for (int32_t op = 0; op < n; ++op) {
    waiting[op] = static_cast<int32_t>(graph.predecessors[op].size());
    if (waiting[op] == 0) order.push_back(op);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int32_t>(i);
    for (int32_t next : graph.successors[order[i]])
      if (--waiting[next] == 0) order.push_back(next);
  }
  std::vector<uint8_t> comparable(n, 1);
  int32_t latest_first_successor = 0;  // over the ops before the present one
  for (int32_t k = 0; k < n; ++k) {
    comparable[order[k]] &= latest_first_successor <= k;
    int32_t first = n;
    for (int32_t next : graph.successors[order[k]]) first = std::min(first, place[next]);
    latest_first_successor = std::max(latest_first_successor, first);
  }
  int32_t earliest_last_predecessor = n;  // over the ops after the present one
  for (int32_t k = n - 1; k >= 0; --k) {
    comparable[order[k]] &= earliest_last_predecessor >= k;
    int32_t last = -1;
    for (int32_t before : graph.predecessors[order[k]]) last = std::max(last, place[before]);
    earliest_last_predecessor = std::min(earliest_last_predecessor, last);
  }
  return comparable;
}

}  // namespace lowtide
