#include "kernels/packing/block_tree.hpp"

#include <numeric>

namespace lowtide {

BlockTree::BlockTree(const PackItems& items, int64_t capacity)
    : n_items_(items.n()), n_moments_(items.n_sections() + 1) {
  int64_t granule = 1;
  for (int64_t alignment : items.alignment) granule = std::lcm(granule, alignment);
  capacity_ = aligned(capacity, granule);
  blocks_.reserve(2 * static_cast<size_t>(n_items_));
  for (int32_t i = 0; i < n_items_; ++i)
    make(items.first[i], items.last[i], aligned(items.sizes[i], granule), Kind::kItem, {});
}

std::vector<int64_t> BlockTree::gains() const {
  std::vector<int64_t> gains(n_moments_, 0);
  gains.front() = -capacity_;
  gains.back() += capacity_;
  for (int32_t i = 0; i < n_items_; ++i) {
    gains[blocks_[i].first] += blocks_[i].size;
    gains[blocks_[i].last] -= blocks_[i].size;
  }
  return gains;
}

std::vector<int64_t> BlockTree::spare() const {
  std::vector<int64_t> spare = gains();
  int64_t gained = 0;
  for (int64_t& here : spare) here = -(gained += here);
  spare.back() = capacity_;
  return spare;
}

int32_t BlockTree::make(int32_t first, int32_t last, int64_t size, Kind kind, std::array<int32_t, 5> parts) {
  blocks_.push_back({first, last, size, kind, parts});
  alive_.push_back(0);
  return static_cast<int32_t>(blocks_.size()) - 1;
}

void BlockTree::set_alive(int32_t block, bool alive) {
  n_left_ += is_hole(block) ? 0 : alive - alive_[block];
  alive_[block] = alive;
}

BlockTree::Rest BlockTree::rest() const {
  Rest rest;
  std::vector<int32_t> moments;
  for (size_t b = 0; b < blocks_.size(); ++b)
    if (alive_[b] && blocks_[b].kind != Kind::kHole) {
      rest.block.push_back(static_cast<int32_t>(b));
      moments.push_back(blocks_[b].first);
      moments.push_back(blocks_[b].last);
    }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  auto place = [&](int32_t moment) {
    return static_cast<int32_t>(std::lower_bound(moments.begin(), moments.end(), moment) - moments.begin());
  };
  for (int32_t b : rest.block) {
    rest.first.push_back(place(blocks_[b].first));
    rest.last.push_back(place(blocks_[b].last));
    rest.sizes.push_back(blocks_[b].size);
    rest.steps.push_back(blocks_[b].last - blocks_[b].first);
  }
  rest.alignment.assign(rest.block.size(), 1);  // all sizes are multiples of every alignment
  rest.fixed.assign(rest.block.size(), -1);
  return rest;
}

std::vector<int64_t> BlockTree::offsets(const Rest& rest, std::span<const int64_t> of_rest) const {
  std::vector<int64_t> at(blocks_.size(), 0);
  for (size_t k = 0; k < rest.block.size(); ++k) at[rest.block[k]] = of_rest[k];
  for (size_t b = blocks_.size(); b-- > static_cast<size_t>(n_items_);) {  // parts come before what they are joined to
    const Block& block = blocks_[b];
    const auto& parts = block.parts;
    if (block.kind == Kind::kParallel) {
      at[parts[0]] = at[b];
      at[parts[1]] = at[b] + blocks_[parts[0]].size;
    } else if (block.kind == Kind::kSeries) {
      at[parts[0]] = at[parts[1]] = at[b];
    } else if (block.kind == Kind::kWheel) {
      const int64_t above = at[b] + blocks_[parts[0]].size;
      at[parts[0]] = at[parts[4]] = at[b];
      at[parts[1]] = at[parts[2]] = above;
      at[parts[3]] = above + blocks_[parts[2]].size;
    }
  }
  at.resize(n_items_);
  return at;
}

}  // namespace lowtide
