#include <queue>

#include "kernels/orders/orders.hpp"
#include "kernels/orders/ready_ops.hpp"

namespace lowtide {
namespace {

struct Entry {
  int64_t freed;
  int32_t name_rank, op;

  bool operator<(const Entry& other) const {
    return freed != other.freed ? freed < other.freed : name_rank > other.name_rank;
  }
};

}  // namespace

Order mesh_list(const GraphView& graph, std::span<const int32_t> name_ranks, const Rows* original_reads) {
  std::vector<int32_t> users_left(graph.n_buffers);
  for (int32_t b = 0; b < graph.n_buffers; ++b) users_left[b] = static_cast<int32_t>(graph.users[b].size());
  std::vector<int64_t> freed(graph.n_ops, 0);
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    for (int32_t b : original_reads != nullptr ? (*original_reads)[op] : graph.touches[op])
      if (users_left[b] == 1 && graph.freeable(b)) freed[op] += graph.sizes[b];
    for (int32_t b : graph.allocates[op])
      if (users_left[b] > 0 || !graph.freeable(b)) freed[op] -= graph.sizes[b];
  }

  // Whether the bytes of a buffer with one user left count as freed by that user from now on.
  auto refreshed = [&](int32_t op, int32_t b) {
    if (original_reads == nullptr) return graph.freeable(b);
    const auto outputs = graph.allocates[op];
    return (graph.freeable(b) || graph.producers[b] >= 0) && (outputs.empty() || graph.freeable(outputs.back()));
  };

  Order order;
  order.reserve(graph.n_ops);
  ReadyOps ready(graph);
  std::priority_queue<Entry> queue;
  auto push = [&](int32_t op) { queue.push({freed[op], name_ranks[op], op}); };
  ready.for_each_source(push);
  while (!queue.empty()) {
    const Entry best = queue.top();
    queue.pop();
    if (ready.has_run(best.op) || best.freed != freed[best.op]) continue;  // stale
    ready.run(best.op);
    order.push_back(best.op);
    for (int32_t b : graph.touches[best.op]) {
      if (--users_left[b] != 1 || !refreshed(best.op, b)) continue;
      const int32_t user = ready.last_user(b);
      freed[user] += graph.sizes[b];
      if (ready.ready(user)) push(user);
    }
    ready.release_successors(best.op, push);
  }
  return order;
}

}  // namespace lowtide
