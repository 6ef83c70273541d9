#include "kernels/pack_unplaced.hpp"

#include <algorithm>

namespace lowtide {

Lowest lowest_unplaced(const Clique& clique, const std::vector<int64_t>& offset, const std::vector<int64_t>& least) {
  Lowest lowest;
  for (int32_t i : clique.items) {
    if (offset[i] >= 0) continue;
    if (least[i] < lowest.floor) {
      lowest.second = lowest.floor;
      lowest.floor = least[i];
      lowest.witness = i;
    } else {
      lowest.second = std::min(lowest.second, least[i]);
    }
  }
  return lowest;
}

std::vector<std::vector<int32_t>> parts_of(const PackItems& items, std::vector<int32_t> unplaced) {
  std::sort(unplaced.begin(), unplaced.end(), [&](int32_t a, int32_t b) {
    return items.first[a] != items.first[b] ? items.first[a] < items.first[b] : a < b;
  });
  std::vector<std::vector<int32_t>> parts;
  int32_t end = -1;
  for (int32_t i : unplaced) {
    if (parts.empty() || items.first[i] >= end) parts.emplace_back();
    parts.back().push_back(i);
    end = std::max(end, items.last[i]);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return parts;
}

bool comes_apart(const Cliques& cliques, const std::vector<int64_t>& offset, const std::vector<int32_t>& part, int32_t item) {
  int32_t first = INT32_MAX, last = -1;
  for (int32_t c = cliques.first(item) + 1; c < cliques.last(item); ++c)
    if (cliques.crossing(c) == 0) {
      first = std::min(first, c);
      last = c;
    }
  if (last < 0) return false;
  int32_t earliest_end = INT32_MAX, latest_start = -1;
  for (int32_t i : part)
    if (offset[i] < 0) {
      earliest_end = std::min(earliest_end, cliques.last(i));
      latest_start = std::max(latest_start, cliques.first(i));
    }
  return earliest_end <= last && latest_start >= first;
}

}  // namespace lowtide
