#include "kernels/packing/best_fit_by_birth.hpp"

#include <map>
#include <numeric>
#include <set>

namespace lowtide {
namespace {

// Free blocks below `end_`, by offset and by size; everything above `end_` is free too.
class FreeBlocks {
 public:
  int64_t take(int64_t size) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit != by_size_.end()) {
      const auto [length, offset] = *fit;
      erase(offset, length);
      if (length > size) insert(offset + size, length - size);
      return offset;
    }
    // The block that ends where all is free can grow.
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [start, length] = *by_offset_.rbegin();
      if (start + length == end_) {
        erase(start, length);
        offset = start;
      }
    }
    end_ = offset + size;
    return offset;
  }

  void give_back(int64_t offset, int64_t size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + size) {
      const int64_t length = next->second;
      erase(offset + size, length);
      size += length;
    }
    auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      const auto [start, length] = *std::prev(after);
      if (start + length == offset) {
        erase(start, length);
        offset = start;
        size += length;
      }
    }
    insert(offset, size);
  }

 private:
  void insert(int64_t offset, int64_t size) {
    by_offset_[offset] = size;
    by_size_.insert({size, offset});
  }
  void erase(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

}  // namespace

std::vector<int64_t> pack_best_fit_by_birth(const PackItems& items) {
  const int32_t n = items.n();
  std::vector<int32_t> births(n), deaths;
  std::vector<int64_t> offsets(n, 0);
  std::iota(births.begin(), births.end(), 0);
  deaths = births;
  std::sort(births.begin(), births.end(), [&](int32_t a, int32_t b) {
    if (items.first[a] != items.first[b]) return items.first[a] < items.first[b];
    return items.sizes[a] != items.sizes[b] ? items.sizes[a] > items.sizes[b] : a < b;
  });
  std::sort(deaths.begin(), deaths.end(),
            [&](int32_t a, int32_t b) { return items.last[a] != items.last[b] ? items.last[a] < items.last[b] : a < b; });
  // With one alignment for all, padded sizes keep every block aligned; else the largest serves all.
  const int64_t alignment = n == 0 ? 1 : *std::max_element(items.alignment.begin(), items.alignment.end());
  FreeBlocks free;
  auto death = deaths.begin();
  for (int32_t item : births) {
    for (; death != deaths.end() && items.last[*death] <= items.first[item]; ++death)
      free.give_back(offsets[*death], aligned(items.sizes[*death], alignment));
    offsets[item] = free.take(aligned(items.sizes[item], alignment));
  }
  return offsets;
}

}  // namespace lowtide
