#include <algorithm>
#include <deque>
#include <optional>
#include <queue>

#include "kernels/program/hash_set.hpp"
#include "kernels/orders/orders.hpp"
#include "kernels/orders/post_order.hpp"
#include "kernels/orders/ready_ops.hpp"

namespace lowtide {
namespace {

// A source's longest path as networkx's queue-based Bellman-Ford finds it: ties go to the op that first gave the next
// one its final length. If there are several sinks, they lead to a target, numbered n_ops.
class PathFinder {
 public:
  PathFinder(const GraphView& graph, int64_t& work_left) : graph_(graph), work_left_(work_left) {
    int32_t n_sinks = 0;
    for (int32_t op = 0; op < graph.n_ops; ++op) n_sinks += graph.successors[op].empty();
    if (n_sinks > 1) target_ = graph.n_ops;
    length_.assign(graph.n_ops + 1, -1);
    queued_.assign(graph.n_ops + 1, 0);
    given_by_.resize(graph.n_ops + 1);
  }

  // The ops of the path from the end to the source; work may go below zero, and then it ends early.
  std::vector<int32_t> path(int32_t source) {
    reach(source, 0, -1);
    while (!queue_.empty() && work_left_ >= 0) {
      const int32_t op = queue_.front();
      queue_.pop_front();
      queued_[op] = 0;
      work_left_ -= 1 + static_cast<int64_t>(given_by_[op].size());
      if (std::ranges::any_of(given_by_[op], [&](int32_t giver) { return queued_[giver]; })) continue;
      if (op == target_) continue;
      for (int32_t after : graph_.successors[op]) reach(after, length_[op] + 1, op);
      if (graph_.successors[op].empty() && target_ >= 0) reach(target_, length_[op] + 1, op);
      work_left_ -= static_cast<int64_t>(graph_.successors[op].size());
    }
    std::vector<int32_t> path{source};
    for (int32_t op : reached_)
      if (length_[op] > length_[path[0]]) path[0] = op;
    while (!given_by_[path.back()].empty()) path.push_back(given_by_[path.back()][0]);
    clear();
    return path;
  }

 private:
  void reach(int32_t op, int32_t length, int32_t giver) {
    if (length < length_[op]) return;
    if (length == length_[op]) {
      given_by_[op].push_back(giver);
      return;
    }
    if (length_[op] < 0) reached_.push_back(op);
    if (!queued_[op]) queue_.push_back(op);
    queued_[op] = 1;
    length_[op] = length;
    given_by_[op].clear();
    if (giver >= 0) given_by_[op].push_back(giver);
  }

  void clear() {
    for (int32_t op : reached_) {
      length_[op] = -1;
      queued_[op] = 0;
      given_by_[op].clear();
    }
    reached_.clear();
    queue_.clear();
  }

  const GraphView& graph_;
  int64_t& work_left_;
  int32_t target_ = -1;
  std::vector<int32_t> length_, reached_;
  std::vector<uint8_t> queued_;
  std::vector<std::vector<int32_t>> given_by_;  // per op, the ops that gave it its length, in turn
  std::deque<int32_t> queue_;
};

// The sources from the leaf below the lowest child of the merged paths to that below the highest; of equally high
// children the one whose edge was merged first comes first. Nothing where the paths make no tree.
std::vector<int32_t> leaves(const GraphView& graph, int64_t& work_left) {
  PathFinder finder(graph, work_left);
  std::vector<int32_t> parent(graph.n_ops + 1, -1), height(graph.n_ops + 1, 0), merged;
  int32_t root = -1;
  for (int32_t source = 0; source < graph.n_ops; ++source) {
    if (!graph.predecessors[source].empty()) continue;
    std::vector<int32_t> path = finder.path(source);
    if (work_left < 0) return {};
    root = path[0];
    std::ranges::reverse(path);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      if (parent[path[i]] == -1) merged.push_back(path[i]);
      if (parent[path[i]] != -1 && parent[path[i]] != path[i + 1]) return {};
      parent[path[i]] = path[i + 1];
      height[path[i + 1]] = std::max(height[path[i + 1]], height[path[i]] + 1);
    }
  }
  std::ranges::stable_sort(merged, {}, [&](int32_t op) { return height[op]; });
  std::vector<std::vector<int32_t>> children(graph.n_ops + 1);
  for (int32_t op : merged) children[parent[op]].push_back(op);
  OwnedRows rows;
  for (const auto& row : children) {
    rows.values.insert(rows.values.end(), row.begin(), row.end());
    rows.end_row();
  }
  std::vector<int32_t> found;
  for (int32_t op : post_order(rows.view(), {&root, 1}))
    if (children[op].empty()) found.push_back(op);
  return found;
}

}  // namespace

Order longest_path(const GraphView& graph, int64_t max_work) {
  int64_t work_left = max_work;
  const std::vector<int32_t> sources = graph.n_ops == 0 ? std::vector<int32_t>{} : leaves(graph, work_left);
  if (sources.empty()) return longest_path_merged(graph);

  // Sources are listed first, then what comes after each, in the order of a hash set. The op listed last runs first.
  std::vector<int32_t> rank(graph.n_ops, 0), seen(graph.n_ops, -1);
  int32_t listed = 0;
  for (int32_t source : sources) rank[source] = ++listed;
  for (int32_t source : sources) {
    std::vector<int32_t> after;
    auto walk = [&](int32_t op) {
      for (int32_t successor : graph.successors[op])
        if (seen[successor] != source) {
          seen[successor] = source;
          after.push_back(successor);
        }
      work_left -= 1 + static_cast<int64_t>(graph.successors[op].size());
    };
    walk(source);
    for (size_t i = 0; i < after.size(); ++i) walk(after[i]);
    if (work_left < 0) return longest_path_merged(graph);
    for (int32_t op : hash_set_order(after))
      if (rank[op] == 0) rank[op] = ++listed;
  }

  Order order;
  order.reserve(graph.n_ops);
  ReadyOps ready(graph);
  auto earlier_listed = [&](int32_t a, int32_t b) { return rank[a] < rank[b]; };
  std::priority_queue<int32_t, std::vector<int32_t>, decltype(earlier_listed)> queue(earlier_listed);
  auto push = [&](int32_t op) { queue.push(op); };
  ready.for_each_source(push);
  while (!queue.empty()) {
    const int32_t op = queue.top();
    queue.pop();
    order.push_back(op);
    ready.release_successors(op, push);
  }
  return order;
}

}  // namespace lowtide
