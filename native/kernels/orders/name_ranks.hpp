// Ties by name, the way two of the originals break them.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lowtide {

// Per name, its place among all names sorted by code point (UTF-8 sorts the same way). O(n log n).
std::vector<int32_t> name_ranks(std::span<const std::string_view> names);

}  // namespace lowtide
