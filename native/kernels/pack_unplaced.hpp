// What both exact searches ask of the items that are not placed yet: those with an offset below zero.
#pragma once
#include "kernels/pack_cliques.hpp"

namespace lowtide {

constexpr int64_t kFar = INT64_MAX / 4;

// The least offset any unplaced item of a clique can have, the first item that has it (-1: all are placed), and the least
// offset of the others.
struct Lowest {
  int64_t floor = kFar, second = kFar;
  int32_t witness = -1;
};
Lowest lowest_unplaced(const Clique& clique, const std::vector<int64_t>& offset, const std::vector<int64_t>& least);

// Splits unplaced items where nothing crosses from one section to the next, into parts from small to large.
std::vector<std::vector<int32_t>> parts_of(const PackItems& items, std::vector<int32_t> unplaced);

// Whether an item just placed was the last to cross some place that has unplaced items of the part on both sides.
bool comes_apart(const Cliques& cliques, const std::vector<int64_t>& offset, const std::vector<int32_t>& part, int32_t item);

}  // namespace lowtide
