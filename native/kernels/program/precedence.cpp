#include "kernels/program/precedence.hpp"

#include <algorithm>

namespace lowtide {
namespace {

using Edge = std::pair<int32_t, int32_t>;

constexpr int64_t kShareOfOneOp = 16;  // of the work that is left, so that no op uses up all of it

// The dependencies that follow for one op, and the least figure that led to any of them.
class Deduction {
 public:
  Deduction(const GraphView& graph, ClosureCutter& cutter, int32_t op, int64_t budget)
      : graph_(graph), op_(op), budget_(budget), probe_(cutter, op), settled_(graph.n_ops) {}

  bool impossible() const { return probe_.peak() > budget_; }
  int64_t peak() const { return probe_.peak(); }
  int64_t work() const { return probe_.work(); }

  // Stops, with what was found, once `max_work` is used up.
  void find(bool before, int64_t max_work, std::vector<Edge>& edges, int64_t& next_budget) {
    settled_.assign(graph_.n_ops, 0);
    for (int32_t i = 0; i < graph_.n_ops && work() < max_work; ++i) {
      const int32_t other = before ? i : graph_.n_ops - 1 - i;
      if (!probe_.is_free(other) || settled_[other]) continue;
      const int64_t peak = probe_.peak_with(other, before);
      if (peak > budget_) {
        next_budget = std::min(next_budget, peak);
        edges.push_back(before ? Edge{op_, other} : Edge{other, op_});
        settle_beyond(other, before);
      } else {
        // Whatever is on the same side in this cut is as harmless.
        for (int32_t o = 0; o < graph_.n_ops; ++o)
          if (probe_.is_free(o) && probe_.runs_before(o) == before) settled_[o] = 1;
      }
    }
  }

 private:
  // What depends on an op that must come later comes later by itself; likewise before.
  void settle_beyond(int32_t other, bool before) {
    queue_.assign(1, other);
    for (size_t i = 0; i < queue_.size(); ++i)
      for (int32_t next : (before ? graph_.successors : graph_.predecessors)[queue_[i]])
        if (!settled_[next]) {
          settled_[next] = 1;
          queue_.push_back(next);
        }
  }

  const GraphView& graph_;
  const int32_t op_;
  const int64_t budget_;
  ClosureCutter::Probe probe_;
  std::vector<uint8_t> settled_;
  std::vector<int32_t> queue_;
};

}  // namespace

bool add_edges(TightenedGraph& graph, const std::vector<Edge>& edges) {
  const auto n = graph.view.n_ops;
  std::vector<std::vector<int32_t>> more(n);
  for (const auto& [earlier, later] : edges) more[later].push_back(earlier);
  OwnedRows predecessors;
  for (int32_t op = 0; op < n; ++op) {
    const auto given = graph.view.predecessors[op];
    auto& values = predecessors.values;
    const auto first = static_cast<int64_t>(values.size());
    values.insert(values.end(), given.begin(), given.end());
    values.insert(values.end(), more[op].begin(), more[op].end());
    std::sort(values.begin() + first, values.end());
    values.erase(std::unique(values.begin() + first, values.end()), values.end());
    predecessors.end_row();
  }
  graph.predecessors = std::move(predecessors);
  graph.successors = transpose(graph.predecessors.view(), n);
  graph.view.predecessors = graph.predecessors.view();
  graph.view.successors = graph.successors.view();

  std::vector<int32_t> waiting(n), queue;
  for (int32_t op = 0; op < n; ++op) {
    waiting[op] = static_cast<int32_t>(graph.view.predecessors[op].size());
    if (waiting[op] == 0) queue.push_back(op);
  }
  for (size_t i = 0; i < queue.size(); ++i)
    for (int32_t next : graph.view.successors[queue[i]])
      if (--waiting[next] == 0) queue.push_back(next);
  return queue.size() == static_cast<size_t>(n);
}

Tightening tighten(TightenedGraph& graph, int32_t space, bool in_place, int64_t budget,
                   std::span<const int32_t> worst_first, int64_t max_work, const std::function<bool()>& go_on) {
  Tightening result;
  std::vector<Edge> edges;
  for (bool changed = true; changed;) {
    changed = false;
    for (int32_t op : worst_first) {
      if (result.work >= max_work || !go_on()) return result;
      edges.clear();
      {
        ClosureCutter cutter(graph.view, space, in_place);
        Deduction deduction(graph.view, cutter, op, budget);
        if (deduction.impossible()) {
          result.next_budget = std::min(result.next_budget, deduction.peak());
          result.possible = false;
          result.over = op;
        } else {
          const int64_t share = (max_work - result.work) / kShareOfOneOp;
          deduction.find(true, share / 2, edges, result.next_budget);
          deduction.find(false, share, edges, result.next_budget);
        }
        result.work += deduction.work();
      }
      for (const auto& [earlier, later] : edges) result.deduced.push_back({op, earlier, later});
      changed |= !edges.empty();
      if (!edges.empty() && !add_edges(graph, edges)) result.possible = false;
      // What just got one more op before or after it may not fit any more: often the contradiction is that near.
      for (size_t e = 0; e < edges.size() && result.possible && result.work < max_work; ++e) {
        const int32_t other = edges[e].first == op ? edges[e].second : edges[e].first;
        const auto cut = ClosureCutter(graph.view, space, in_place).cut(other);
        result.work += cut.work;
        if (cut.peak <= budget) continue;
        result.next_budget = std::min(result.next_budget, cut.peak);
        result.possible = false;
        result.over = other;
      }
      if (!result.possible) return result;
    }
  }
  return result;
}

}  // namespace lowtide
