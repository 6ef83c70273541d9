// Which ops may run next.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

// Counts, for every op, the predecessors that have not run yet.
class ReadyOps {
 public:
  explicit ReadyOps(const GraphView& graph) : graph_(graph), waits_for_(graph.n_ops), has_run_(graph.n_ops, 0) {
    for (int32_t op = 0; op < graph.n_ops; ++op)
      waits_for_[op] = static_cast<int32_t>(graph.predecessors[op].size());
  }

  bool ready(int32_t op) const { return waits_for_[op] == 0 && !has_run_[op]; }
  bool has_run(int32_t op) const { return has_run_[op]; }

  // Visits the ops that wait for nothing, in program order.
  template <class Visit>
  void for_each_source(Visit visit) const {
    for (int32_t op = 0; op < graph_.n_ops; ++op)
      if (waits_for_[op] == 0) visit(op);
  }

  void run(int32_t op) { has_run_[op] = 1; }

  // Visits the ops that became ready because `op` ran, in program order; call it once per op.
  template <class Visit>
  void release_successors(int32_t op, Visit visit) {
    for (int32_t successor : graph_.successors[op])
      if (--waits_for_[successor] == 0) visit(successor);
  }

  // The one user of `buffer` that has not run yet. O(users): call it once per buffer, when a single one is left.
  int32_t last_user(int32_t buffer) const {
    for (int32_t user : graph_.users[buffer])
      if (!has_run_[user]) return user;
    return -1;
  }

 private:
  const GraphView& graph_;
  std::vector<int32_t> waits_for_;
  std::vector<uint8_t> has_run_;
};

}  // namespace lowtide
