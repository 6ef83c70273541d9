#include "kernels/orders/orders.hpp"
#include "kernels/orders/post_order.hpp"

namespace lowtide {

Order xla_postorder(const GraphView& graph, const Rows& reads) {
  OwnedRows before;
  before.values.reserve(graph.predecessors.values.size());
  std::vector<int32_t> operand_of(graph.n_ops, -1), operands, sinks;
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    operands.clear();
    for (int32_t b : reads[op]) {
      const int32_t producer = graph.producers[b];
      if (producer < 0 || producer == op || operand_of[producer] == op) continue;
      operand_of[producer] = op;
      operands.push_back(producer);
    }
    for (int32_t predecessor : graph.predecessors[op])
      if (operand_of[predecessor] != op) before.values.push_back(predecessor);
    before.values.insert(before.values.end(), operands.begin(), operands.end());
    before.end_row();
    if (graph.successors[op].empty()) sinks.push_back(op);
  }
  return post_order(before.view(), sinks);
}

}  // namespace lowtide
