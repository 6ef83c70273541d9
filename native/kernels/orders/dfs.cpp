#include <algorithm>
#include <numeric>

#include "kernels/program/op_sizes.hpp"
#include "kernels/orders/orders.hpp"
#include "kernels/orders/post_order.hpp"

namespace lowtide {

Order dfs(const GraphView& graph) {
  std::vector<int64_t> bytes = allocated_bytes(graph);
  for (int32_t op = 0; op < graph.n_ops; ++op)
    for (int32_t b : graph.touches[op])
      if (graph.producers[b] >= 0 || graph.freeable(b)) bytes[op] += graph.sizes[b];
  Order ranked(graph.n_ops);
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(), [&](int32_t a, int32_t b) { return bytes[a] < bytes[b]; });
  return post_order(predecessors_as_ranked(graph, ranked).view(), ranked);
}

}  // namespace lowtide
