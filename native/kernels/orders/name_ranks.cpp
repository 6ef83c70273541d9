#include "kernels/orders/name_ranks.hpp"

#include <algorithm>

namespace lowtide {
namespace {

// The first eight bytes after what all names have in common decide most comparisons without looking at the name.
struct Key {
  uint64_t first_bytes;
  int32_t place;
};

size_t common_prefix(std::span<const std::string_view> names) {
  size_t length = names.empty() ? 0 : names[0].size();
  for (const auto& name : names) {
    const auto shorter = std::min(length, name.size());
    length = std::mismatch(name.begin(), name.begin() + shorter, names[0].begin()).first - name.begin();
  }
  return length;
}

uint64_t first_bytes(std::string_view name) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < sizeof bytes; ++i) bytes = bytes << 8 | (i < name.size() ? static_cast<uint8_t>(name[i]) : 0);
  return bytes;
}

}  // namespace

std::vector<int32_t> name_ranks(std::span<const std::string_view> names) {
  const size_t common = common_prefix(names);
  std::vector<Key> keys(names.size());
  for (size_t i = 0; i < names.size(); ++i)
    keys[i] = {first_bytes(names[i].substr(common)), static_cast<int32_t>(i)};
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    return a.first_bytes != b.first_bytes ? a.first_bytes < b.first_bytes : names[a.place] < names[b.place];
  });
  std::vector<int32_t> ranks(names.size());
  for (size_t rank = 0; rank < keys.size(); ++rank) ranks[keys[rank].place] = static_cast<int32_t>(rank);
  return ranks;
}

}  // namespace lowtide
