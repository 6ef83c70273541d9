#include "kernels/program/csr.hpp"

namespace lowtide {

OwnedRows transpose(const Rows& rows, int64_t n_columns) {
  OwnedRows result;
  result.offsets.assign(n_columns + 1, 0);
  for (int32_t column : rows.values) ++result.offsets[column + 1];
  for (int64_t c = 0; c < n_columns; ++c) result.offsets[c + 1] += result.offsets[c];
  result.values.resize(rows.values.size());
  std::vector<int64_t> next(result.offsets.begin(), result.offsets.end() - 1);
  for (int64_t r = 0; r < rows.count(); ++r)
    for (int32_t column : rows[r]) result.values[next[column]++] = static_cast<int32_t>(r);
  return result;
}

}  // namespace lowtide
