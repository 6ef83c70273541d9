// The order in which CPython walks a set of small ints.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

// Takes numbers that are not negative, each once, in the order in which they are added; returns them as a set holds
// them. CPython 3.7 and later: a number is its own hash, ten entries are looked at from there, then perturbed places;
// tables are three fifths full at most. O(n) expected.
std::vector<int32_t> hash_set_order(std::span<const int32_t> added);

}  // namespace lowtide
