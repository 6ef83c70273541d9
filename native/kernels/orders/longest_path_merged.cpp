#include <algorithm>

#include "kernels/orders/orders.hpp"
#include "kernels/orders/post_order.hpp"

namespace lowtide {
namespace {

// The next op on each op's longest path; all sinks lead to one target, numbered n_ops.
std::vector<int32_t> next_on_longest_path(const GraphView& graph) {
  std::vector<int32_t> next(graph.n_ops, graph.n_ops), length(graph.n_ops, 1);
  for (int32_t op = graph.n_ops - 1; op >= 0; --op)
    for (int32_t successor : graph.successors[op])
      if (length[successor] + 1 > length[op]) {
        length[op] = length[successor] + 1;
        next[op] = successor;
      }
  return next;
}

// The tree that the sources' longest paths merge to: children of every op and of the target, the highest first.
OwnedRows path_tree(const GraphView& graph) {
  const auto next = next_on_longest_path(graph);
  std::vector<uint8_t> in_tree(graph.n_ops, 0);
  std::vector<int32_t> height(graph.n_ops + 1, 0);
  int32_t highest = 0;
  for (int32_t op = 0; op < graph.n_ops; ++op) {  // next[op] > op, so children come before their parent
    if (graph.predecessors[op].empty()) in_tree[op] = 1;
    if (!in_tree[op]) continue;
    if (next[op] < graph.n_ops) in_tree[next[op]] = 1;
    height[next[op]] = std::max(height[next[op]], height[op] + 1);
    highest = std::max(highest, height[op]);
  }
  std::vector<std::vector<int32_t>> by_height(highest + 1);
  OwnedRows children;
  children.offsets.assign(graph.n_ops + 2, 0);
  for (int32_t op = 0; op < graph.n_ops; ++op)
    if (in_tree[op]) {
      by_height[height[op]].push_back(op);
      ++children.offsets[next[op] + 1];
    }
  for (int32_t op = 0; op <= graph.n_ops; ++op) children.offsets[op + 1] += children.offsets[op];
  children.values.resize(children.offsets.back());
  std::vector<int64_t> filled(children.offsets.begin(), children.offsets.end() - 1);
  for (auto level = by_height.rbegin(); level != by_height.rend(); ++level)
    for (int32_t op : *level) children.values[filled[next[op]]++] = op;
  return children;
}

}  // namespace

Order longest_path_merged(const GraphView& graph) {
  if (graph.n_ops == 0) return {};
  const OwnedRows tree = path_tree(graph);
  const int32_t target = graph.n_ops;

  // Per op, the start place of the last source it waits for. No op waits for a later start than its successors do, so
  // the starts in turn, each with what it completes in program order, are a topological order.
  std::vector<int32_t> start(graph.n_ops, 0);
  int32_t n_starts = 0;
  for (int32_t node : post_order(tree.view(), {&target, 1}))
    if (node != target && graph.predecessors[node].empty()) start[node] = n_starts++;
  std::vector<int64_t> filled(n_starts + 1, 0);
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    for (int32_t predecessor : graph.predecessors[op]) start[op] = std::max(start[op], start[predecessor]);
    ++filled[start[op] + 1];
  }
  for (int32_t s = 0; s < n_starts; ++s) filled[s + 1] += filled[s];
  Order order(graph.n_ops);
  for (int32_t op = 0; op < graph.n_ops; ++op) order[filled[start[op]]++] = op;
  return order;
}

}  // namespace lowtide
