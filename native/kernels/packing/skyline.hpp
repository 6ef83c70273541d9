// Packing from the bottom up, along the skyline of what is placed.
#pragma once
#include <memory>

#include "kernels/packing/items.hpp"
#include "kernels/packing/quadrant_tree.hpp"

namespace lowtide {

// Takes the lowest run of the skyline (the leftmost of equals) and places there the best ranked item that lies wholly inside
// it; where none does, the run is raised to its lower neighbor. For rectangles only, none of them fixed. Source: skyline
// packing (Burke, Kendall & Whitwell 2004), over time instead of width. O(n) steps of one query each.
class Skyline {
 public:
  explicit Skyline(const PackItems& items);

  // `ranks` holds every item's place in the order of preference.
  std::vector<int64_t> place(std::span<const int32_t> ranks);

 private:
  const PackItems& items_;
  int32_t n_sections_;
  QuadrantTree tree_;
};

}  // namespace lowtide
