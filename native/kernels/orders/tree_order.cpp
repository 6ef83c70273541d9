#include "kernels/orders/tree_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/program/evaluate.hpp"

namespace lowtide {
namespace {

bool is_forest(const GraphView& graph) {
  if (graph.n_spaces != 1) return false;
  for (int32_t op = 0; op < graph.n_ops; ++op)
    if (graph.successors[op].size() > 1) return false;
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (graph.freeable(b) && graph.sizes[b] > 0 && graph.users[b].size() > 1) return false;
  return true;
}

// Heaps of segments. A segment is named by its first op; it runs without anything in between.
class SegmentHeaps {
 public:
  static constexpr int32_t kNone = -1;

  explicit SegmentHeaps(int32_t n_ops)
      : rise_(n_ops), net_(n_ops), last_op_(n_ops), next_op_(n_ops, kNone), left_(n_ops, kNone), right_(n_ops, kNone),
        depth_(n_ops, 1) {
    std::iota(last_op_.begin(), last_op_.end(), 0);
  }

  // A segment of one op that adds `rise` bytes at most and leaves `net` behind.
  void make(int32_t op, int64_t rise, int64_t net) {
    rise_[op] = rise;
    net_[op] = net;
  }

  // The segment of `first` followed by `second`, neither of which is in a heap.
  int32_t join(int32_t first, int32_t second) {
    rise_[first] = std::max(rise_[first], net_[first] + rise_[second]);
    net_[first] += net_[second];
    next_op_[last_op_[first]] = second;
    last_op_[first] = last_op_[second];
    return first;
  }

  // Whether `first` should run no later than `second`: what frees comes first, by what it needs; then what keeps
  // memory, by how much of what it needs it gives back.
  bool no_later(int32_t first, int32_t second) const { return !(key(second) < key(first)); }

  // Merges two heaps; the segment that should run last is on top. O(log n).
  int32_t merge(int32_t a, int32_t b) {
    if (a == kNone) return b;
    if (b == kNone) return a;
    if (std::pair(key(a), a) < std::pair(key(b), b)) std::swap(a, b);
    right_[a] = merge(right_[a], b);
    if (depth(left_[a]) < depth(right_[a])) std::swap(left_[a], right_[a]);
    depth_[a] = depth(right_[a]) + 1;
    return a;
  }

  // Takes the top off a heap and returns the rest.
  int32_t pop(int32_t top) {
    const int32_t rest = merge(left_[top], right_[top]);
    left_[top] = right_[top] = kNone;
    depth_[top] = 1;
    return rest;
  }

  int32_t next_op(int32_t op) const { return next_op_[op]; }

 private:
  std::pair<bool, int64_t> key(int32_t s) const {
    return {net_[s] > 0, net_[s] > 0 ? net_[s] - rise_[s] : rise_[s]};
  }
  int32_t depth(int32_t s) const { return s == kNone ? 0 : depth_[s]; }

  std::vector<int64_t> rise_, net_;         // per segment
  std::vector<int32_t> last_op_, next_op_;  // the ops of a segment, as a list
  std::vector<int32_t> left_, right_, depth_;
};

}  // namespace

std::vector<int32_t> tree_order(const GraphView& graph, bool in_place) {
  if (!is_forest(graph)) return {};
  std::vector<int32_t> program(graph.n_ops);
  std::iota(program.begin(), program.end(), 0);
  const auto profile = evaluate(graph, program, in_place, true).profile;
  int64_t live = 0;
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (graph.lifetimes[b] == kInput || (graph.lifetimes[b] == kDonated && !graph.users[b].empty()))
      live += graph.sizes[b];

  SegmentHeaps segments(graph.n_ops);
  std::vector<int32_t> operands(graph.n_ops, SegmentHeaps::kNone);  // per op: the heap of what runs before it
  int32_t all = SegmentHeaps::kNone;
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    int64_t net = 0;
    for (int32_t b : graph.allocates[op])
      if (!graph.users[b].empty() || !graph.freeable(b)) net += graph.sizes[b];
    for (int32_t b : graph.touches[op])
      if (graph.freeable(b)) net -= graph.sizes[b];
    segments.make(op, profile[op] - live, net);
    live += net;

    int32_t last = op, before = operands[op];
    while (before != SegmentHeaps::kNone && segments.no_later(last, before)) {
      const int32_t top = before;
      before = segments.pop(top);
      last = segments.join(top, last);
    }
    auto& target = graph.successors[op].empty() ? all : operands[graph.successors[op].front()];
    target = segments.merge(target, segments.merge(before, last));
  }

  std::vector<int32_t> firsts, order;
  for (; all != SegmentHeaps::kNone; all = segments.pop(all)) firsts.push_back(all);
  for (auto first = firsts.rbegin(); first != firsts.rend(); ++first)
    for (int32_t op = *first; op != SegmentHeaps::kNone; op = segments.next_op(op)) order.push_back(op);
  return order;
}

}  // namespace lowtide
