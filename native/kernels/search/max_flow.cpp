#include "kernels/search/max_flow.hpp"

#include <algorithm>

namespace lowtide {

void MaxFlow::index_edges() {
  first_.assign(n_nodes_ + 1, 0);
  for (size_t e = 0; e < from_.size(); ++e) {
    ++first_[from_[e] + 1];
    ++first_[to_[e] + 1];
  }
  for (int32_t n = 0; n < n_nodes_; ++n) first_[n + 1] += first_[n];
  const size_t n_arcs = from_.size() * 2;
  head_.resize(n_arcs);
  residual_.resize(n_arcs);
  twin_.resize(n_arcs);
  arc_.resize(from_.size());
  std::vector<int64_t> place(first_.begin(), first_.end() - 1);
  for (size_t e = 0; e < from_.size(); ++e) {
    const int64_t out = place[from_[e]]++, back = place[to_[e]]++;
    arc_[e] = out;
    head_[out] = to_[e];
    residual_[out] = capacity_[e];
    twin_[out] = back;
    head_[back] = from_[e];
    residual_[back] = 0;
    twin_[back] = out;
  }
}

bool MaxFlow::find_levels() {
  level_.assign(n_nodes_, -1);
  level_[kSource] = 0;
  std::vector<int32_t> queue{kSource};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t node = queue[i];
    work_ += first_[node + 1] - first_[node];
    for (int64_t a = first_[node]; a < first_[node + 1]; ++a) {
      if (residual_[a] == 0 || level_[head_[a]] >= 0) continue;
      level_[head_[a]] = level_[node] + 1;
      queue.push_back(head_[a]);
    }
  }
  return level_[kSink] >= 0;
}

int64_t MaxFlow::push_blocking_flow(int64_t limit) {
  int64_t total = 0;
  std::vector<int64_t> path;  // arcs from the source to the present node
  int32_t node = kSource;
  while (total < limit) {
    if (node == kSink) {
      int64_t amount = limit - total;
      for (int64_t a : path) amount = std::min(amount, residual_[a]);
      size_t keep = path.size();
      for (size_t i = path.size(); i-- > 0;) {
        residual_[path[i]] -= amount;
        residual_[twin_[path[i]]] += amount;
        if (residual_[path[i]] == 0) keep = i;
      }
      total += amount;
      work_ += static_cast<int64_t>(path.size());
      path.resize(keep);
      node = path.empty() ? kSource : head_[path.back()];
      continue;
    }
    int64_t& a = next_[node];
    while (a < first_[node + 1] && (residual_[a] == 0 || level_[head_[a]] != level_[node] + 1)) ++a, ++work_;
    if (a < first_[node + 1]) {
      path.push_back(a);
      node = head_[a];
    } else {
      if (path.empty()) break;
      level_[node] = INT32_MAX;  // leads nowhere in this phase
      path.pop_back();
      node = path.empty() ? kSource : head_[path.back()];
      ++next_[node];
    }
  }
  return total;
}

int64_t MaxFlow::run(int64_t most) {
  if (first_.empty()) index_edges();
  int64_t flow = 0;
  while (flow < most && find_levels()) {
    next_.assign(first_.begin(), first_.end() - 1);
    flow += push_blocking_flow(most - flow);
  }
  return flow;
}

}  // namespace lowtide
