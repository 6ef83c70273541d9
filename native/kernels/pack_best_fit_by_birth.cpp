#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "kernels/pack.hpp"

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

std::vector<int64_t> pack_best_fit_by_birth(const PackingInput& input) {
  const auto n = static_cast<int64_t>(input.sizes.size());
  std::vector<int64_t> births(n), deaths(n), offsets(n, 0);
  std::iota(births.begin(), births.end(), 0);
  deaths = births;
  std::sort(births.begin(), births.end(), [&](int64_t a, int64_t b) {
    if (input.first[a] != input.first[b]) return input.first[a] < input.first[b];
    return input.sizes[a] != input.sizes[b] ? input.sizes[a] > input.sizes[b] : a < b;
  });
  std::sort(deaths.begin(), deaths.end(),
            [&](int64_t a, int64_t b) { return input.last[a] != input.last[b] ? input.last[a] < input.last[b] : a < b; });
  auto padded = [&](int64_t size) { return (size + input.alignment - 1) / input.alignment * input.alignment; };
  FreeBlocks free;
  auto death = deaths.begin();
  for (int64_t buffer : births) {
    for (; death != deaths.end() && input.last[*death] <= input.first[buffer]; ++death)
      free.give_back(offsets[*death], padded(input.sizes[*death]));
    offsets[buffer] = free.take(padded(input.sizes[buffer]));
  }
  return offsets;
}

}  // namespace lowtide
