#include "kernels/program/structure.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/register.hpp"

namespace lowtide::bindings {

struct StructureResult {
  RowsResult allocates, touches, predecessors, successors, users;
  Result<int32_t> producers;
  int32_t failed_op, failed_buffer;
};

void register_structure(nb::module_& m) {
  nb::class_<StructureResult>(m, "StructureResult")
      .def_ro("allocates", &StructureResult::allocates, nb::rv_policy::automatic)
      .def_ro("touches", &StructureResult::touches, nb::rv_policy::automatic)
      .def_ro("predecessors", &StructureResult::predecessors, nb::rv_policy::automatic)
      .def_ro("successors", &StructureResult::successors, nb::rv_policy::automatic)
      .def_ro("users", &StructureResult::users, nb::rv_policy::automatic)
      .def_ro("producers", &StructureResult::producers, nb::rv_policy::automatic)
      .def_ro("failed_op", &StructureResult::failed_op)
      .def_ro("failed_buffer", &StructureResult::failed_buffer);
  m.def(
      "derive_structure",
      [](Array<uint8_t> lifetimes, Array<int64_t> read_offsets, Array<int32_t> reads, Array<int64_t> write_offsets,
         Array<int32_t> writes, Array<int64_t> mutate_offsets, Array<int32_t> mutates, Array<int64_t> after_offsets,
         Array<int32_t> after, Array<bool> ordered) {
        const Program program{span_of(lifetimes),
                              rows_of(read_offsets, reads),
                              rows_of(write_offsets, writes),
                              rows_of(mutate_offsets, mutates),
                              rows_of(after_offsets, after),
                              {reinterpret_cast<const uint8_t*>(ordered.data()), ordered.shape(0)}};
        Structure s;
        {
          nb::gil_scoped_release released;
          s = derive_structure(program);
        }
        return StructureResult{to_numpy(std::move(s.allocates)),
                               to_numpy(std::move(s.touches)),
                               to_numpy(std::move(s.predecessors)),
                               to_numpy(std::move(s.successors)),
                               to_numpy(std::move(s.users)),
                               to_numpy(std::move(s.producers)),
                               s.failed_op,
                               s.failed_buffer};
      },
      nb::arg("lifetimes"), nb::arg("read_offsets"), nb::arg("reads"), nb::arg("write_offsets"), nb::arg("writes"),
      nb::arg("mutate_offsets"), nb::arg("mutates"), nb::arg("after_offsets"), nb::arg("after"), nb::arg("ordered"),
      "Derive dependencies, users and producers from a program order.");
}

}  // namespace lowtide::bindings
