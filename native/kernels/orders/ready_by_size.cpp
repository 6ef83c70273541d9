#include "kernels/orders/ready_by_size.hpp"

#include <algorithm>
#include <numeric>

namespace lowtide {

ReadyBySize::ReadyBySize(std::span<const int64_t> sizes) : sizes_(sizes.size()), places_(sizes.size()) {
  std::vector<int32_t> sorted(sizes.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return sizes[a] < sizes[b]; });
  for (size_t place = 0; place < sorted.size(); ++place) {
    places_[sorted[place]] = static_cast<int32_t>(place);
    sizes_[place] = sizes[sorted[place]];
  }
  while (n_leaves_ < sizes.size()) n_leaves_ *= 2;
  tree_.resize(2 * n_leaves_);
}

void ReadyBySize::replay(int32_t op, Entry entry) {
  size_t node = n_leaves_ + places_[op];
  tree_[node] = entry;
  while (node > 1) {
    const Entry &left = tree_[node & ~size_t{1}], &right = tree_[node | 1];
    const Entry& winner = right.before(left) ? right : left;
    node /= 2;
    if (winner.op == tree_[node].op && winner.op != op) return;  // op neither won here nor does it now
    tree_[node] = winner;
  }
}

int64_t ReadyBySize::least_size() const {
  size_t node = 1;
  while (node < n_leaves_) node = tree_[2 * node].op >= 0 ? 2 * node : 2 * node + 1;
  return sizes_[node - n_leaves_];
}

int32_t ReadyBySize::least_net_up_to(int64_t size) const {
  size_t last = n_leaves_ + (std::upper_bound(sizes_.begin(), sizes_.end(), size) - sizes_.begin());
  Entry best;
  auto challenge = [&](const Entry& entry) {
    if (entry.before(best)) best = entry;
  };
  for (size_t first = n_leaves_; first < last; first /= 2, last /= 2) {
    if (first & 1) challenge(tree_[first++]);
    if (last & 1) challenge(tree_[--last]);
  }
  return best.op;
}

}  // namespace lowtide
