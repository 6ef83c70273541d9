// The least memory at which an op can ever run.
#pragma once
#include "kernels/program/graph_view.hpp"
#include "kernels/search/max_flow.hpp"

namespace lowtide {

struct ClosureCut {
  int64_t peak = 0;                 // least bytes in the space while the op runs, over all orders
  std::vector<uint8_t> before;      // per op: runs before it in an order that attains `peak`
  int64_t work = 0;
};

// A flow that shows how much an op needs, (first, second, bytes) one after the other: along dependencies, from the later op
// to the earlier one, and from a buffer to an op that must run before it goes. An op itself stands for "never before it
// runs", and what it may write into an operand for the chance to do so.
struct CutFlow {
  std::vector<int64_t> dependencies, uses;
};

// Whatever runs before an op is closed under predecessors, holds its ancestors and none of its descendants. Live bytes are
// submodular over such sets, so the least is a minimum cut. Exact without in-place pairs; with them, a lower bound that is
// exact when every written buffer has one candidate to take over. One flow over the ops incomparable with `op`.
class ClosureCutter {
 public:
  ClosureCutter(const GraphView& graph, int32_t space, bool in_place);

  enum Side : uint8_t { kFree, kBefore, kAfter };

  ClosureCut cut(int32_t op);
  CutFlow flow(int32_t op);  // a maximum flow of `cut`, without the buffers that are there in any case

  // Looks at one op from now on: what follows takes time in the ops incomparable with it and their buffers only.
  void enter(int32_t op);

  // The least peak of the op entered, over the orders that agree with what is fixed: `fixed(o)` tells, for every op
  // incomparable with it, whether it runs before, after, or is free. What is fixed must be closed.
  template <class Fixed>
  int64_t least_peak(Fixed fixed, int64_t& work) {
    for (int32_t o : free_ops_) side_[o] = fixed(o);
    MaxFlow flow(2);
    const int64_t peak = build(flow) + flow.run();
    for (int32_t o : free_ops_) side_[o] = kFree;
    work += flow.work() + flow.n_edges() + static_cast<int64_t>(free_ops_.size() + buffers_.size());
    return peak;
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
  void mark_comparable();
  void find_neighbors();
  // An edge of the flow graph by what it stands for.
  struct Named {
    int64_t edge;
    int32_t first, second;
    bool is_use;
  };
  int64_t build(MaxFlow& flow, std::vector<Named>* named = nullptr);
  bool may_take_over(int32_t op, int32_t read, int32_t written) const;

  const GraphView& graph_;
  const int32_t space_;
  const bool in_place_;
  int64_t kept_inputs_ = 0;
  int32_t op_ = -1;
  std::vector<Side> side_;
  std::vector<int32_t> free_ops_;  // incomparable with the op, ascending
  std::vector<int32_t> buffers_;   // of this space, allocated or touched by a free op
  int64_t elsewhere_ = 0;          // bytes of all other buffers that are live before the op
  std::vector<int32_t> node_;      // per op: its node in the flow graph
  std::vector<int32_t> queue_;
};

}  // namespace lowtide
