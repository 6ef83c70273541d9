// The lowest point between two closed sets.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

// Finds, among all closed sets X with `inner` <= X <= `inner` + `segment`, one with the least live bytes in a space.
//
// Live bytes are submodular over closed sets, so this is a minimum cut over the segment's ops; its work is that of one
// flow over the segment and the buffers its ops touch.
class ValleyFinder {
 public:
  explicit ValleyFinder(const GraphView& graph)
      : graph_(graph), node_(graph.n_ops, -1), seen_(graph.n_buffers, 0) {}

  // `executed(op)` tells, for ops outside the segment, whether they are in `inner`. Returns per op of the segment
  // whether it is in X; of several least sets the largest or the smallest one.
  template <class Executed>
  std::vector<uint8_t> find(std::span<const int32_t> segment, Executed executed, int32_t space, bool largest) {
    begin(segment);
    for (int32_t op : segment) {
      for (int32_t b : graph_.allocates[op]) add_buffer(b, executed, space);
      for (int32_t b : graph_.touches[op]) add_buffer(b, executed, space);
    }
    return solve(segment, largest);
  }

  int64_t work() const { return work_; }  // of the last find

 private:
  struct Edge {
    int32_t from, to;
    int64_t capacity;
  };
  static constexpr int32_t kIn = 0, kOut = 1;  // X's side, the other side

  void begin(std::span<const int32_t> segment);
  std::vector<uint8_t> solve(std::span<const int32_t> segment, bool largest);

  template <class Executed>
  void add_buffer(int32_t b, Executed executed, int32_t space) {
    if (seen_[b] == round_) return;
    seen_[b] = round_;
    const uint8_t lifetime = graph_.lifetimes[b];
    if (graph_.spaces[b] != space || graph_.sizes[b] == 0 || lifetime == kPersistent || lifetime == kInput) return;
    const int32_t producer = graph_.producers[b];
    const bool inside = producer >= 0 && node_[producer] >= 0;
    if (!inside && producer >= 0 && !executed(producer)) return;
    const int32_t from = inside ? node_[producer] : kIn;
    int32_t users = 0, single = -1;
    bool kept = lifetime == kOutput;
    for (int32_t user : graph_.users[b]) {
      if (node_[user] >= 0) {
        ++users;
        single = user;
      } else if (!executed(user)) {
        kept = true;
      }
    }
    if (kept) {
      if (inside) edges_.push_back({from, kOut, graph_.sizes[b]});
    } else if (users == 1) {
      edges_.push_back({from, node_[single], graph_.sizes[b]});
    } else if (users > 1) {
      const int32_t joint = n_nodes_++;
      edges_.push_back({from, joint, graph_.sizes[b]});
      for (int32_t user : graph_.users[b])
        if (node_[user] >= 0) edges_.push_back({joint, node_[user], -1});
    }
  }

  const GraphView& graph_;
  std::vector<int32_t> node_;
  std::vector<int64_t> seen_;
  int64_t round_ = 0;
  int32_t n_nodes_ = 2;
  std::vector<Edge> edges_;
  int64_t work_ = 0;
};

}  // namespace lowtide
