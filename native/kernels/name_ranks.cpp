#include "kernels/name_ranks.hpp"

#include <algorithm>
#include <numeric>

namespace lowtide {

std::vector<int32_t> name_ranks(std::span<const std::string_view> names) {
  std::vector<int32_t> sorted(names.size()), ranks(names.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return names[a] < names[b]; });
  for (size_t place = 0; place < sorted.size(); ++place) ranks[sorted[place]] = static_cast<int32_t>(place);
  return ranks;
}

}  // namespace lowtide
