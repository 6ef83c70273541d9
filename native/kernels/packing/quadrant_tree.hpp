// Among intervals, the best ranked one that lies within a span; with deletions.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

// A k-d tree over the points (first, last): "inside [x, y)" is the quadrant first >= x, last <= y. Every node keeps the best
// rank below it, so that a search leaves most of the tree alone. Built in O(n log n); a query is O(sqrt n) at worst, a
// deletion O(log n).
class QuadrantTree {
 public:
  QuadrantTree(std::span<const int32_t> first, std::span<const int32_t> last);

  // Gives every interval its rank, lower is better, and brings back what was removed. O(n).
  void set_ranks(std::span<const int32_t> ranks);
  // The least rank of an interval inside [x, y), or -1.
  int32_t best_inside(int32_t x, int32_t y) const;
  void remove(int32_t interval);

 private:
  struct Node {
    int32_t min_first, max_first, min_last, max_last;
    int32_t best;
    int32_t begin, end;   // of `order_`
    int32_t left, right;  // -1 in a leaf
    int32_t parent;
  };

  int32_t build(int32_t begin, int32_t end, int32_t parent, bool by_first);
  void search(int32_t node, int32_t x, int32_t y, int32_t& best) const;

  std::span<const int32_t> first_, last_;
  std::vector<int32_t> order_, rank_, leaf_;
  std::vector<Node> nodes_;
};

}  // namespace lowtide
