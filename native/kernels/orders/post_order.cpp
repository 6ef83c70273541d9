#include "kernels/orders/post_order.hpp"

namespace lowtide {

std::vector<int32_t> post_order(const Rows& before, std::span<const int32_t> starts) {
  std::vector<int32_t> order;
  order.reserve(before.count());
  std::vector<uint8_t> seen(before.count(), 0);
  std::vector<int64_t> next(before.offsets.begin(), before.offsets.end() - 1);  // per op: first child not looked at
  std::vector<int32_t> stack;
  auto enter = [&](int32_t op) {
    if (seen[op]) return;
    seen[op] = 1;
    stack.push_back(op);
  };
  for (int32_t start : starts) {
    enter(start);
    while (!stack.empty()) {
      const int32_t op = stack.back();
      if (next[op] < before.offsets[op + 1]) {
        enter(before.values[next[op]++]);
      } else {
        order.push_back(op);
        stack.pop_back();
      }
    }
  }
  return order;
}

OwnedRows predecessors_as_ranked(const GraphView& graph, std::span<const int32_t> ranked) {
  OwnedRows rows;
  rows.offsets.assign(graph.predecessors.offsets.begin(), graph.predecessors.offsets.end());
  rows.values.resize(graph.predecessors.values.size());
  std::vector<int64_t> next(rows.offsets.begin(), rows.offsets.end() - 1);
  for (int32_t op : ranked)
    for (int32_t successor : graph.successors[op]) rows.values[next[successor]++] = op;
  return rows;
}

}  // namespace lowtide
