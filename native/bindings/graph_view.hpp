// A GraphView that keeps the NumPy arrays behind it alive.
#pragma once
#include "bindings/arrays.hpp"
#include "kernels/program/graph_view.hpp"

namespace lowtide::bindings {

struct HeldGraphView {
  GraphView view;
  std::vector<nb::object> held;
};

// The order as a kernel takes it; throws where it does not hold every op once, since kernels index by it unchecked.
inline std::span<const int32_t> order_of(const HeldGraphView& graph, const Array<int32_t>& order) {
  const auto ops = span_of(order);
  std::vector<bool> seen(graph.view.n_ops, false);
  bool every_op_once = ops.size() == seen.size();
  for (size_t i = 0; every_op_once && i < ops.size(); ++i) {
    every_op_once = ops[i] >= 0 && ops[i] < graph.view.n_ops && !seen[ops[i]];
    if (every_op_once) seen[ops[i]] = true;
  }
  if (!every_op_once) throw nb::value_error("order must hold every op once");
  return ops;
}

// The same for a kernel that replays the order, which must not run an op before what it waits for.
inline std::span<const int32_t> topological_order_of(const HeldGraphView& graph, const Array<int32_t>& order) {
  const auto ops = order_of(graph, order);
  std::vector<bool> has_run(ops.size(), false);
  for (int32_t op : ops) {
    for (int32_t earlier : graph.view.predecessors[op])
      if (!has_run[earlier]) throw nb::value_error("order must run every op after its predecessors");
    has_run[op] = true;
  }
  return ops;
}

}  // namespace lowtide::bindings
