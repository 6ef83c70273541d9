// Blocks, and what they are joined of.
#pragma once
#include <array>

#include "kernels/packing/items.hpp"

namespace lowtide {

// The first blocks are the items, with sizes and the capacity rounded up to a common multiple of all alignments; every other one
// is joined of earlier ones or is a hole. Those alive are the ones that no other holds.
class BlockTree {
 public:
  enum class Kind : int8_t { kItem, kHole, kParallel, kSeries, kWheel };
  struct Block {
    int32_t first, last;
    int64_t size;
    Kind kind;
    std::array<int32_t, 5> parts;  // from the bottom or the left; wheels: bottom, left, middle, top, right
  };

  BlockTree(const PackItems& items, int64_t capacity);

  const Block& operator[](int32_t block) const { return blocks_[block]; }
  bool is_hole(int32_t block) const { return blocks_[block].kind == Kind::kHole; }
  int64_t capacity() const { return capacity_; }
  int32_t n_items() const { return n_items_; }
  int32_t n_moments() const { return n_moments_; }
  // Blocks alive that are no holes.
  int32_t n_left() const { return n_left_; }
  // Per moment, the bytes born less the bytes that die, the arena's edges included.
  std::vector<int64_t> gains() const;
  // Per section, the bytes of the capacity that nothing takes.
  std::vector<int64_t> spare() const;

  int32_t make(int32_t first, int32_t last, int64_t size, Kind kind, std::array<int32_t, 5> parts);
  void set_alive(int32_t block, bool alive);

  // What is left, without holes: sections numbered anew.
  struct Rest {
    std::vector<int32_t> block, first, last;
    std::vector<int64_t> sizes, steps, alignment, fixed;
    PackItems items() const { return {first, last, sizes, alignment, fixed, {}, {}, {}, {}}; }
  };
  Rest rest() const;
  // Offsets of items from those of the blocks left.
  std::vector<int64_t> offsets(const Rest& rest, std::span<const int64_t> of_rest) const;

 private:
  int64_t capacity_;
  int32_t n_items_, n_moments_, n_left_ = 0;
  std::vector<Block> blocks_;
  std::vector<char> alive_;
};

}  // namespace lowtide
