#include "kernels/search/valley.hpp"

#include "kernels/search/max_flow.hpp"

namespace lowtide {

void ValleyFinder::begin(std::span<const int32_t> segment) {
  ++round_;
  n_nodes_ = 2;
  edges_.clear();
  for (int32_t op : segment) node_[op] = n_nodes_++;
  for (int32_t op : segment)
    for (int32_t earlier : graph_.predecessors[op])
      if (node_[earlier] >= 0) edges_.push_back({node_[op], node_[earlier], -1});
}

std::vector<uint8_t> ValleyFinder::solve(std::span<const int32_t> segment, bool largest) {
  // The flow gives the least source side of all minimum cuts; turned around, that is the largest set on X's side.
  MaxFlow flow(n_nodes_);
  for (const auto& edge : edges_) {
    const int64_t capacity = edge.capacity < 0 ? MaxFlow::kInfinite : edge.capacity;
    auto turned = [&](int32_t node) { return !largest || node > 1 ? node : 1 - node; };
    if (largest)
      flow.add_edge(turned(edge.to), turned(edge.from), capacity);
    else
      flow.add_edge(edge.from, edge.to, capacity);
  }
  flow.run();
  work_ = flow.work() + static_cast<int64_t>(edges_.size());
  std::vector<uint8_t> in(segment.size());
  for (size_t i = 0; i < segment.size(); ++i) {
    in[i] = flow.on_source_side(node_[segment[i]]) != largest;
    node_[segment[i]] = -1;
  }
  return in;
}

}  // namespace lowtide
