#include <algorithm>
#include <numeric>

#include "kernels/pack.hpp"

namespace lowtide {

std::vector<int64_t> pack_greedy_by_size(const PackingInput& input) {
  const auto n = static_cast<int64_t>(input.sizes.size());
  std::vector<int64_t> by_size(n), offsets(n, 0), placed;  // placed: ascending by offset
  std::iota(by_size.begin(), by_size.end(), 0);
  std::sort(by_size.begin(), by_size.end(), [&](int64_t a, int64_t b) {
    if (input.sizes[a] != input.sizes[b]) return input.sizes[a] > input.sizes[b];
    const int64_t length_a = input.last[a] - input.first[a], length_b = input.last[b] - input.first[b];
    return length_a != length_b ? length_a > length_b : a < b;
  });
  placed.reserve(n);
  auto align = [&](int64_t offset) { return (offset + input.alignment - 1) / input.alignment * input.alignment; };
  for (int64_t buffer : by_size) {
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    for (int64_t other : placed) {
      if (input.last[other] <= input.first[buffer] || input.last[buffer] <= input.first[other]) continue;
      const int64_t gap = offsets[other] - top;
      if (gap >= input.sizes[buffer] && gap < best_gap) {
        best = top;
        best_gap = gap;
      }
      top = std::max(top, align(offsets[other] + input.sizes[other]));
    }
    offsets[buffer] = best >= 0 ? best : top;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offsets[buffer],
                                   [&](int64_t offset, int64_t other) { return offset < offsets[other]; }),
                  buffer);
  }
  return offsets;
}

}  // namespace lowtide
