#include <algorithm>
#include <queue>
#include <tuple>

#include "kernels/program/op_sizes.hpp"
#include "kernels/orders/orders.hpp"
#include "kernels/orders/ready_by_size.hpp"
#include "kernels/orders/ready_ops.hpp"

namespace lowtide {
namespace {

struct Candidate {
  int32_t first_successor;
  int64_t sequence;
  int32_t op;

  bool operator>(const Candidate& other) const {
    return std::tie(first_successor, sequence) > std::tie(other.first_successor, other.sequence);
  }
};

}  // namespace

Order lpmf(const GraphView& graph, int64_t threshold) {
  auto counts = [&](int32_t b) { return graph.producers[b] >= 0 || graph.freeable(b); };
  std::vector<int32_t> uses_left(graph.n_buffers);
  int64_t live = 0, outputs = 0;
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    const bool output = graph.lifetimes[b] == kOutput;
    uses_left[b] = static_cast<int32_t>(graph.users[b].size()) + (output ? 1 : 0);
    if (output) outputs += graph.sizes[b];
    if (graph.lifetimes[b] == kDonated && uses_left[b] > 0) live += graph.sizes[b];
  }
  const auto sizes = allocated_bytes(graph);
  std::vector<int64_t> freed(graph.n_ops, 0);
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    for (int32_t b : graph.touches[op])
      if (uses_left[b] == 1 && counts(b)) freed[op] += graph.sizes[b];
    for (int32_t b : graph.allocates[op])
      if (uses_left[b] == 0) freed[op] += graph.sizes[b];
  }

  Order order;
  order.reserve(graph.n_ops);
  ReadyOps ready(graph);
  ReadyBySize by_size(sizes);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> by_successor;
  int64_t sequence = 0;
  auto enter = [&](int32_t op) {
    by_size.put(op, sizes[op] - freed[op]);
    if (threshold <= 0) return;
    const auto successors = graph.successors[op];
    by_successor.push({successors.empty() ? graph.n_ops : successors[0], sequence++, op});
  };
  int64_t peak = std::max(live, outputs);
  auto select = [&] {
    if (threshold > 0 && by_size.least_size() > threshold) {
      while (ready.has_run(by_successor.top().op)) by_successor.pop();
      return by_successor.top().op;
    }
    const int32_t fitting = by_size.least_net_up_to(peak - live);
    return fitting >= 0 ? fitting : by_size.least_net_of_smallest();
  };

  ready.for_each_source(enter);
  while (static_cast<int32_t>(order.size()) < graph.n_ops) {
    const int32_t op = select();
    ready.run(op);
    order.push_back(op);
    by_size.remove(op);
    peak = std::max(peak, live + sizes[op]);
    live += sizes[op] - freed[op];
    for (int32_t b : graph.touches[op]) {
      if (--uses_left[b] != 1 || !counts(b)) continue;
      const int32_t user = ready.last_user(b);
      if (user < 0) continue;  // what is left is the graph's output
      freed[user] += graph.sizes[b];
      if (ready.ready(user)) by_size.put(user, sizes[user] - freed[user]);
    }
    ready.release_successors(op, enter);
  }
  return order;
}

}  // namespace lowtide
