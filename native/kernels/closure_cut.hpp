// The least memory at which an op can ever run.
#pragma once
#include "kernels/graph_view.hpp"
#include "kernels/max_flow.hpp"

namespace lowtide {

struct ClosureCut {
  int64_t peak = 0;                 // least bytes in the space while the op runs, over all orders
  std::vector<uint8_t> before;      // per op: runs before it in an order that attains `peak`
  int64_t work = 0;
};

// Whatever runs before an op is closed under predecessors, holds its ancestors and none of its descendants. Live bytes are
// submodular over such sets, so the least is a minimum cut. Exact without in-place pairs; with them, a lower bound that is
// exact when every written buffer has one candidate to take over. One flow over the ops incomparable with `op`.
class ClosureCutter {
 public:
  ClosureCutter(const GraphView& graph, int32_t space, bool in_place);

  enum Side : uint8_t { kFree, kBefore, kAfter };

  ClosureCut cut(int32_t op) { return cut(op, [](int32_t) { return kFree; }); }

  // The same for the orders that agree with what is fixed: `fixed(o)` tells for every op whether it runs before `op`,
  // after it, or is free. What is fixed must be closed and must not contradict the dependencies.
  template <class Fixed>
  ClosureCut cut(int32_t op, Fixed fixed) {
    mark_comparable(op);
    for (int32_t o = 0; o < graph_.n_ops; ++o)
      if (side_[o] == kFree) side_[o] = fixed(o);
    return solve(op);
  }

  // The least peak while `op` runs given that one more op runs before it, or after it; shares one flow for many probes.
  class Probe {
   public:
    Probe(ClosureCutter& cutter, int32_t op);
    int64_t peak() const { return peak_; }  // without a condition
    bool is_free(int32_t other) const { return cutter_.side_[other] == kFree; }
    // Least peak with `other` before (or after).
    int64_t peak_with(int32_t other, bool before);
    // After `peak_with`: whether the set it found has `other` before `op`.
    bool runs_before(int32_t other) const { return flow_.on_source_side(cutter_.node_[other]); }
    int64_t work() const { return flow_.work() + probes_ * flow_.n_edges() + cutter_.graph_.n_ops; }

   private:
    ClosureCutter& cutter_;
    MaxFlow flow_;
    int64_t peak_ = 0, probes_ = 1;
    std::vector<int64_t> before_edge_, after_edge_;  // per op, -1 where not free
    std::vector<int64_t> base_;
  };

 private:
  void mark_comparable(int32_t op);
  ClosureCut solve(int32_t op);
  int64_t build(int32_t op, MaxFlow& flow);
  bool may_take_over(int32_t op, int32_t read, int32_t written) const;

  const GraphView& graph_;
  const int32_t space_;
  const bool in_place_;
  int64_t kept_inputs_ = 0;
  std::vector<Side> side_;
  std::vector<int32_t> node_;   // per op: its node in the flow graph
  std::vector<int32_t> queue_;
};

}  // namespace lowtide
