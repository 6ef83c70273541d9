#include <algorithm>
#include <set>

#include "kernels/orders/orders.hpp"
#include "kernels/orders/ready_ops.hpp"

namespace lowtide {

Order bfs(const GraphView& graph) {
  // Per op, the places of its predecessors in the order. They are noted as the predecessors run, so they come sorted.
  std::vector<int32_t> places(graph.predecessors.values.size());
  std::vector<int64_t> noted(graph.predecessors.offsets.begin(), graph.predecessors.offsets.end() - 1);
  auto places_of = [&](int32_t op) {
    return std::span<const int32_t>(places.data() + graph.predecessors.offsets[op], graph.predecessors[op].size());
  };
  auto earlier = [&](int32_t a, int32_t b) {
    const auto left = places_of(a), right = places_of(b);
    const auto compared = std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end());
    return compared != 0 ? compared < 0 : a < b;
  };
  // A search tree, not a heap: lists are only compared on insertion, so an op costs its own list log n times, no more.
  std::set<int32_t, decltype(earlier)> queue(earlier);

  Order order;
  order.reserve(graph.n_ops);
  ReadyOps ready(graph);
  auto insert = [&](int32_t op) { queue.insert(op); };
  ready.for_each_source(insert);
  while (!queue.empty()) {
    const int32_t op = *queue.begin();
    queue.erase(queue.begin());
    const auto place = static_cast<int32_t>(order.size());
    order.push_back(op);
    for (int32_t successor : graph.successors[op]) places[noted[successor]++] = place;
    ready.release_successors(op, insert);
  }
  return order;
}

}  // namespace lowtide
