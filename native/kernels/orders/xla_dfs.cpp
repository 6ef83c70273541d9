#include <algorithm>
#include <numeric>

#include "kernels/program/op_sizes.hpp"
#include "kernels/orders/orders.hpp"
#include "kernels/orders/post_order.hpp"

namespace lowtide {
namespace {

// a + b, but no more than `cap`; all three are >= 0 and neither a nor b exceeds the largest cap there is.
int64_t capped_sum(int64_t a, int64_t b, int64_t cap) { return a > cap - std::min(b, cap) ? cap : a + b; }

}  // namespace

Order xla_dfs(const GraphView& graph, const Rows& reads, std::span<const int32_t> name_ranks) {
  std::vector<int64_t> total_sizes = allocated_bytes(graph), extra_users(graph.n_ops);
  const auto users = user_counts(graph);
  std::vector<int32_t> operand_of(graph.n_ops, -1);
  int64_t all_sizes = 0;
  for (int32_t op : xla_postorder(graph, reads)) {
    all_sizes += total_sizes[op];
    extra_users[op] = std::max(users[op] - 1, 0);
    for (int32_t b : graph.touches[op]) {
      const int32_t operand = graph.producers[b];
      if (operand < 0 || operand_of[operand] == op) continue;
      operand_of[operand] = op;
      total_sizes[op] = capped_sum(total_sizes[op], total_sizes[operand], all_sizes);
      extra_users[op] = capped_sum(extra_users[op], extra_users[operand], graph.n_ops);
    }
  }

  Order ranked(graph.n_ops), sinks;
  std::iota(ranked.begin(), ranked.end(), 0);
  std::sort(ranked.begin(), ranked.end(), [&](int32_t a, int32_t b) {
    if (extra_users[a] != extra_users[b]) return extra_users[a] > extra_users[b];
    return total_sizes[a] != total_sizes[b] ? total_sizes[a] > total_sizes[b] : name_ranks[a] < name_ranks[b];
  });
  for (int32_t op : ranked)
    if (graph.successors[op].empty()) sinks.push_back(op);
  return post_order(predecessors_as_ranked(graph, ranked).view(), sinks);
}

}  // namespace lowtide
