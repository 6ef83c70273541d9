// What the packing kernels place: rigid items over sections of time, in one memory space.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/program/csr.hpp"

namespace lowtide {

// One live piece of an item: over half-open sections it covers the bytes [low, high) above the item's offset. The label says
// whose piece it is where pairs are concerned. Within an item pieces ascend by `low`.
struct Piece {
  int32_t first, last;
  int64_t low, high;
  int32_t label;
};

// Items in columns. Sections are the spans between neighboring births and deaths, numbered from 0. An item without pieces
// of its own (`pieces` empty for all) is one rectangle: alive over [first, last), `sizes` bytes high; then there are no pairs.
struct PackItems {
  std::span<const int32_t> first, last;  // the hull of the item's pieces
  std::span<const int64_t> sizes;        // bytes, > 0
  std::span<const int64_t> alignment;    // the offset is a multiple of it
  std::span<const int64_t> fixed;        // the offset it must have, or -1
  std::span<const int64_t> piece_rows;   // n + 1 bounds into `pieces`, or empty when every item is one rectangle
  std::span<const Piece> pieces;
  Rows may_overlap;                      // per label, ascending, those that may share its bytes; symmetric; or empty
  Rows apart;                            // per label, ascending, those that never may; symmetric; or empty

  int32_t n() const { return static_cast<int32_t>(sizes.size()); }
  int32_t n_sections() const { return last.empty() ? 0 : *std::max_element(last.begin(), last.end()); }
  bool rectangles() const { return piece_rows.empty(); }
  std::span<const Piece> pieces_of(int32_t item) const {
    return pieces.subspan(piece_rows[item], piece_rows[item + 1] - piece_rows[item]);
  }

  // Whether two pieces must not share bytes.
  bool conflict(const Piece& one, const Piece& two) const {
    if (holds(apart, one, two)) return true;
    return one.first < two.last && two.first < one.last && !holds(may_overlap, one, two);
  }

 private:
  static bool holds(const Rows& rows, const Piece& one, const Piece& two) {
    if (rows.offsets.empty()) return false;
    const auto row = rows[one.label];
    return std::binary_search(row.begin(), row.end(), two.label);
  }
};

// When a search must stop: after looking at `work` items, or when `go_on`, asked now and then, says no.
struct PackLimits {
  int64_t work;
  std::function<bool()> go_on;
};

inline int64_t aligned(int64_t offset, int64_t alignment) {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

// The end of the highest item.
inline int64_t height_of(const PackItems& items, std::span<const int64_t> offsets) {
  int64_t height = 0;
  for (int32_t i = 0; i < items.n(); ++i) height = std::max(height, offsets[i] + items.sizes[i]);
  return height;
}

}  // namespace lowtide
