// Which in-place pairs an op takes.
#pragma once
#include "kernels/program/evaluate.hpp"

namespace lowtide {

// Matches the buffers that die at an op with the buffers it writes, for the most bytes saved.
//
// What a pair saves depends on the written buffer alone (sizes are equal), so matching the written buffers in order of
// falling size along augmenting paths is optimal (a transversal matroid). O(pairs * outputs) per op.
class InPlaceMatcher {
 public:
  explicit InPlaceMatcher(const GraphView& graph)
      : graph_(graph), taken_by_(graph.n_buffers, -1), visited_(graph.n_buffers, 0) {}

  // Appends the pairs taken at `op`. `dies(buffer)` tells whether a buffer has no use after this op.
  template <class Dies>
  void match(int32_t op, Dies dies, std::vector<InPlacePair>& taken) {
    const auto flat = graph_.in_place[op];
    if (flat.empty()) return;
    candidates_.clear();
    outputs_.clear();
    for (size_t i = 0; i + 1 < flat.size(); i += 2) {
      const int32_t read = flat[i], written = flat[i + 1];
      if (graph_.producers[written] != op || !graph_.freeable(read) || graph_.sizes[read] != graph_.sizes[written] ||
          graph_.sizes[read] == 0 || graph_.spaces[read] != graph_.spaces[written] || !dies(read))
        continue;
      candidates_.push_back({op, read, written});
      outputs_.push_back(written);
    }
    sort_outputs();
    for (int32_t written : outputs_) {
      ++round_;
      augment(written);
    }
    for (const auto& pair : candidates_)
      if (taken_by_[pair.read] == pair.written) {
        taken.push_back(pair);
        taken_by_[pair.read] = -1;
      }
  }

 private:
  void sort_outputs();
  bool augment(int32_t written);

  const GraphView& graph_;
  std::vector<InPlacePair> candidates_;
  std::vector<int32_t> outputs_;
  std::vector<int32_t> taken_by_;  // per read buffer: the written one that takes it over
  std::vector<int64_t> visited_;   // per read buffer: the round that tried it last
  int64_t round_ = 0;
};

}  // namespace lowtide
