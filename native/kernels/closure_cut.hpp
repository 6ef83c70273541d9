// The least memory at which an op can ever run.
#pragma once
#include "kernels/graph_view.hpp"

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

  ClosureCut cut(int32_t op);

 private:
  enum Side : uint8_t { kFree, kBefore, kAfter };

  void mark_comparable(int32_t op);
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
