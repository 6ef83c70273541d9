#include <queue>

#include "kernels/program/op_sizes.hpp"
#include "kernels/orders/orders.hpp"
#include "kernels/orders/ready_ops.hpp"

namespace lowtide {
namespace {

struct Entry {
  int64_t freed;
  int32_t users;
  int64_t sequence;
  int32_t op;

  bool operator<(const Entry& other) const {
    if (freed != other.freed) return freed < other.freed;
    return users != other.users ? users < other.users : sequence < other.sequence;
  }
};

}  // namespace

Order xla_list(const GraphView& graph) {
  // Buffers that no op allocates are parameters and constants to XLA: they count as nothing.
  auto counts = [&](int32_t b) { return graph.producers[b] >= 0; };
  std::vector<int32_t> uses_left(graph.n_buffers);
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    uses_left[b] = static_cast<int32_t>(graph.users[b].size()) + (graph.lifetimes[b] == kOutput ? 1 : 0);
  const auto defined = allocated_bytes(graph);
  const auto users = user_counts(graph);
  std::vector<int64_t> freed(graph.n_ops);
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    freed[op] = -defined[op] - graph.scratch_of(op);
    for (int32_t b : graph.touches[op])
      if (uses_left[b] == 1 && counts(b)) freed[op] += graph.sizes[b];
  }

  Order order;
  order.reserve(graph.n_ops);
  ReadyOps ready(graph);
  std::priority_queue<Entry> queue;
  std::vector<int64_t> newest(graph.n_ops, -1), queued_at(graph.n_ops, 0);
  int64_t sequence = 0;
  auto push = [&](int32_t op) {
    newest[op] = sequence;
    queued_at[op] = freed[op];
    queue.push({freed[op], users[op], sequence++, op});
  };
  std::vector<int32_t> raised;
  ready.for_each_source(push);
  while (!queue.empty()) {
    const Entry best = queue.top();
    queue.pop();
    if (best.sequence != newest[best.op]) continue;  // stale
    newest[best.op] = -1;
    ready.run(best.op);
    order.push_back(best.op);
    raised.clear();
    for (int32_t b : graph.touches[best.op]) {
      if (--uses_left[b] != 1 || !counts(b)) continue;
      const int32_t user = ready.last_user(b);
      if (user < 0) continue;  // what is left is the use after the end
      freed[user] += graph.sizes[b];
      if (newest[user] >= 0) raised.push_back(user);
    }
    ready.release_successors(best.op, push);
    for (int32_t op : raised)
      if (freed[op] != queued_at[op]) push(op);
  }
  return order;
}

}  // namespace lowtide
