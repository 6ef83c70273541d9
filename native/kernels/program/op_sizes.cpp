#include "kernels/program/op_sizes.hpp"

namespace lowtide {

std::vector<int64_t> allocated_bytes(const GraphView& graph) {
  std::vector<int64_t> bytes(graph.n_ops, 0);
  for (int32_t op = 0; op < graph.n_ops; ++op)
    for (int32_t b : graph.allocates[op]) bytes[op] += graph.sizes[b];
  return bytes;
}

std::vector<int32_t> user_counts(const GraphView& graph) {
  std::vector<int32_t> counts(graph.n_ops, 0), counted_for(graph.n_ops, -1);
  for (int32_t op = 0; op < graph.n_ops; ++op)
    for (int32_t b : graph.allocates[op])
      for (int32_t user : graph.users[b])
        if (counted_for[user] != op) {
          counted_for[user] = op;
          ++counts[op];
        }
  return counts;
}

}  // namespace lowtide
