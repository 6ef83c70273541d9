// NumPy arrays in and out of the kernels, without copying.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <tuple>
#include <utility>
#include <vector>

#include "kernels/program/csr.hpp"

namespace lowtide::bindings {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Result = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
using RowsResult = std::tuple<Result<int64_t>, Result<int32_t>>;

template <class T>
std::span<const T> span_of(const Array<T>& array) {
  return {array.data(), array.shape(0)};
}

inline Rows rows_of(const Array<int64_t>& offsets, const Array<int32_t>& values) {
  return {span_of(offsets), span_of(values)};
}

// Hand a vector's memory over to NumPy.
template <class T>
Result<T> to_numpy(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Result<T>(kept->data(), {kept->size()}, owner);
}

inline RowsResult to_numpy(OwnedRows rows) {
  return {to_numpy(std::move(rows.offsets)), to_numpy(std::move(rows.values))};
}

}  // namespace lowtide::bindings
