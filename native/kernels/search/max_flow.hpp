// Maximum flow with integer capacities: Dinic's algorithm, iterative, on a graph built edge by edge.
#pragma once
#include <cstdint>
#include <vector>

namespace lowtide {

class MaxFlow {
 public:
  static constexpr int64_t kInfinite = INT64_MAX / 4;

  // Node 0 is the source, node 1 the sink.
  static constexpr int32_t kSource = 0, kSink = 1;

  explicit MaxFlow(int32_t n_nodes) : n_nodes_(n_nodes) {}

  int32_t add_node() { return n_nodes_++; }
  // Returns the edge's number.
  int64_t add_edge(int32_t from, int32_t to, int64_t capacity) {
    from_.push_back(from);
    to_.push_back(to);
    capacity_.push_back(capacity);
    return static_cast<int64_t>(from_.size()) - 1;
  }

  // Pushes what can still be pushed and returns it, at most `most`. May be called again after `widen`.
  int64_t run(int64_t most = kInfinite);

  // After a run: lets an edge carry any amount.
  void widen(int64_t edge) { residual_[arc_[edge]] = kInfinite; }
  // After a run: lets an edge carry more.
  void widen(int64_t edge, int64_t amount) { residual_[arc_[edge]] += amount; }

  // The flow that is there now, to come back to.
  const std::vector<int64_t>& residual() const { return residual_; }
  void restore(const std::vector<int64_t>& residual) { residual_ = residual; }

  // After a run that pushed all it could: whether the source reaches the node in the residual graph (the least source
  // side of a minimum cut).
  bool on_source_side(int32_t node) const { return level_[node] >= 0; }

  // After a run: what an edge carries.
  int64_t carried(int64_t edge) const { return capacity_[edge] - residual_[arc_[edge]]; }

  int64_t n_edges() const { return static_cast<int64_t>(from_.size()); }
  int64_t work() const { return work_; }  // arcs looked at

 private:
  void index_edges();
  bool find_levels();
  int64_t push_blocking_flow(int64_t limit);

  int32_t n_nodes_;
  std::vector<int32_t> from_, to_;       // as added
  std::vector<int64_t> capacity_;        // as added
  std::vector<int64_t> first_;           // arcs of a node: [first_[n], first_[n + 1])
  std::vector<int64_t> arc_;             // per edge: its arc
  std::vector<int32_t> head_;            // per arc
  std::vector<int64_t> residual_, twin_; // per arc
  std::vector<int32_t> level_;
  std::vector<int64_t> next_;
  int64_t work_ = 0;
};

}  // namespace lowtide
