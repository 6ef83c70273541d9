#include "kernels/ready_by_size.hpp"

#include <algorithm>
#include <numeric>

namespace lowtide {

ReadyBySize::ReadyBySize(std::span<const int64_t> sizes)
    : sizes_(sizes.begin(), sizes.end()), places_(sizes.size()), nets_(sizes.size(), 0) {
  std::vector<int32_t> sorted(sizes.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return sizes[a] < sizes[b]; });
  for (size_t place = 0; place < sorted.size(); ++place) {
    places_[sorted[place]] = static_cast<int32_t>(place);
    sizes_[place] = sizes[sorted[place]];
  }
  while (n_leaves_ < sizes.size()) n_leaves_ *= 2;
  tree_.assign(2 * n_leaves_, -1);
}

int32_t ReadyBySize::better(int32_t a, int32_t b) const {
  if (a < 0 || b < 0) return std::max(a, b);
  if (nets_[a] != nets_[b]) return nets_[a] < nets_[b] ? a : b;
  return std::min(a, b);
}

void ReadyBySize::replay(int32_t op, int32_t winner) {
  size_t node = n_leaves_ + places_[op];
  tree_[node] = winner;
  while (node > 1) {
    node /= 2;
    winner = better(tree_[2 * node], tree_[2 * node + 1]);
    if (winner == tree_[node] && winner != op) return;  // op neither won here nor does it now
    tree_[node] = winner;
  }
}

void ReadyBySize::put(int32_t op, int64_t net) {
  nets_[op] = net;
  replay(op, op);
}

void ReadyBySize::remove(int32_t op) { replay(op, -1); }

int32_t ReadyBySize::smallest() const {
  size_t node = 1;
  while (node < n_leaves_) node = tree_[2 * node] >= 0 ? 2 * node : 2 * node + 1;
  return tree_[node];
}

int32_t ReadyBySize::least_net_up_to(int64_t size) const {
  size_t last = n_leaves_ + (std::upper_bound(sizes_.begin(), sizes_.end(), size) - sizes_.begin());
  int32_t best = -1;
  for (size_t first = n_leaves_; first < last; first /= 2, last /= 2) {
    if (first & 1) best = better(best, tree_[first++]);
    if (last & 1) best = better(best, tree_[--last]);
  }
  return best;
}

}  // namespace lowtide
