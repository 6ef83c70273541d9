// Sets of items alive at once, and what is unplaced in them.
#pragma once
#include "kernels/packing/items.hpp"

namespace lowtide {

// A maximal set of items alive at once; `floor` is the least offset any unplaced one can have, and `witness` has it.
struct Clique {
  std::vector<int32_t> items;
  int64_t unplaced_bytes = 0, floor = 0;
  int32_t witness = -1;
  int64_t failures = 0;
};

// One clique for every section whose live set no neighbor contains, from left to right.
class Cliques {
 public:
  explicit Cliques(const PackItems& items);

  int32_t n() const { return static_cast<int32_t>(cliques_.size()); }
  Clique& operator[](int32_t clique) { return cliques_[clique]; }
  const Clique& operator[](int32_t clique) const { return cliques_[clique]; }

  // The cliques that an item's hull reaches; it is in all of those in which it has a live piece.
  int32_t first(int32_t item) const { return first_[item]; }
  int32_t last(int32_t item) const { return last_[item]; }
  bool holds(int32_t clique, int32_t item) const;
  // Unplaced items that reach both a clique and the one before.
  int32_t crossing(int32_t clique) const { return crossing_[clique]; }

  // Makes every item unplaced.
  void reset();
  // Adds an item to what is unplaced (1), or takes it out (-1).
  void count(int32_t item, int32_t sign);

 private:
  void find_discounts();
  void find_sections();
  int64_t bytes_in(int32_t clique, int32_t item) const;
  bool alive(const Piece& piece, int32_t clique) const {
    return piece.first <= section_[clique] && section_[clique] < piece.last;
  }

  const PackItems& items_;
  std::vector<Clique> cliques_;
  std::vector<int32_t> section_, first_, last_, crossing_;
  std::vector<int64_t> discount_;  // per label: allowed overlap is taken off the sums, once a pair, from the earlier of the two
};

}  // namespace lowtide
