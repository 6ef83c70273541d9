// Compressed rows: the one container every kernel reads and writes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

// Borrowed rows: row i is values[offsets[i] .. offsets[i + 1]).
struct Rows {
  std::span<const int64_t> offsets;
  std::span<const int32_t> values;

  std::span<const int32_t> operator[](int64_t row) const {
    return values.subspan(offsets[row], offsets[row + 1] - offsets[row]);
  }
  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// Owned rows, filled one row after the other.
struct OwnedRows {
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> values;

  void end_row() { offsets.push_back(static_cast<int64_t>(values.size())); }
  Rows view() const { return {offsets, values}; }
};

// For every column of `rows`, the rows that hold it, in ascending order. O(n + e).
OwnedRows transpose(const Rows& rows, int64_t n_columns);

}  // namespace lowtide
