#include "kernels/packing/quadrant_tree.hpp"

#include <algorithm>
#include <numeric>

namespace lowtide {
namespace {

constexpr int32_t kLeaf = 8, kNone = INT32_MAX;

}  // namespace

QuadrantTree::QuadrantTree(std::span<const int32_t> first, std::span<const int32_t> last) : first_(first), last_(last) {
  const auto n = static_cast<int32_t>(first.size());
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0);
  rank_.assign(n, kNone);
  leaf_.resize(n);
  nodes_.reserve(n / kLeaf * 4 + 1);
  if (n > 0) build(0, n, -1, true);
}

int32_t QuadrantTree::build(int32_t begin, int32_t end, int32_t parent, bool by_first) {
  const auto index = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, kNone, begin, end, -1, -1, parent});
  Node bounds = nodes_[index];
  for (int32_t k = begin; k < end; ++k) {
    const int32_t i = order_[k];
    bounds.min_first = std::min(bounds.min_first, first_[i]);
    bounds.max_first = std::max(bounds.max_first, first_[i]);
    bounds.min_last = std::min(bounds.min_last, last_[i]);
    bounds.max_last = std::max(bounds.max_last, last_[i]);
  }
  if (end - begin <= kLeaf) {
    for (int32_t k = begin; k < end; ++k) leaf_[order_[k]] = index;
  } else {
    const int32_t middle = begin + (end - begin) / 2;
    const auto key = by_first ? first_ : last_;
    std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                     [&](int32_t a, int32_t b) { return key[a] != key[b] ? key[a] < key[b] : a < b; });
    bounds.left = build(begin, middle, index, !by_first);
    bounds.right = build(middle, end, index, !by_first);
  }
  nodes_[index] = bounds;
  return index;
}

void QuadrantTree::set_ranks(std::span<const int32_t> ranks) {
  std::copy(ranks.begin(), ranks.end(), rank_.begin());
  for (size_t index = nodes_.size(); index-- > 0;) {  // children come after their parents
    Node& node = nodes_[index];
    node.best = kNone;
    if (node.left >= 0) node.best = std::min(nodes_[node.left].best, nodes_[node.right].best);
    else
      for (int32_t k = node.begin; k < node.end; ++k) node.best = std::min(node.best, rank_[order_[k]]);
  }
}

int32_t QuadrantTree::best_inside(int32_t x, int32_t y) const {
  int32_t best = kNone;
  if (!nodes_.empty()) search(0, x, y, best);
  return best == kNone ? -1 : best;
}

void QuadrantTree::search(int32_t index, int32_t x, int32_t y, int32_t& best) const {
  const Node& node = nodes_[index];
  if (node.best >= best || node.max_first < x || node.min_last > y) return;
  if (node.min_first >= x && node.max_last <= y) {
    best = node.best;
  } else if (node.left >= 0) {
    const bool left_first = nodes_[node.left].best < nodes_[node.right].best;
    search(left_first ? node.left : node.right, x, y, best);
    search(left_first ? node.right : node.left, x, y, best);
  } else {
    for (int32_t k = node.begin; k < node.end; ++k) {
      const int32_t i = order_[k];
      if (first_[i] >= x && last_[i] <= y) best = std::min(best, rank_[i]);
    }
  }
}

void QuadrantTree::remove(int32_t interval) {
  rank_[interval] = kNone;
  for (int32_t index = leaf_[interval]; index >= 0; index = nodes_[index].parent) {
    Node& node = nodes_[index];
    const int32_t before = node.best;
    node.best = kNone;
    if (node.left >= 0) node.best = std::min(nodes_[node.left].best, nodes_[node.right].best);
    else
      for (int32_t k = node.begin; k < node.end; ++k) node.best = std::min(node.best, rank_[order_[k]]);
    if (node.best == before) break;
  }
}

}  // namespace lowtide
