#include "kernels/search/closure_cut.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/graph_view.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_closure_cut(nb::module_& m) {
  nb::class_<ClosureCutter>(m, "ClosureCutter", "Finds the least memory at which an op can ever run, by minimum cut.")
      .def(
          "__init__",
          [](ClosureCutter* self, const HeldGraphView& graph, int32_t space, bool in_place) {
            new (self) ClosureCutter(graph.view, space, in_place);
          },
          nb::arg("graph"), nb::arg("space"), nb::arg("in_place"), nb::keep_alive<1, 2>())
      .def(
          "cut",
          [](ClosureCutter& self, int32_t op) {
            ClosureCut cut;
            {
              nb::gil_scoped_release released;
              cut = self.cut(op);
            }
            return std::make_tuple(cut.peak, to_numpy(std::move(cut.before)), cut.work);
          },
          nb::arg("op"), "The least peak while `op` runs, per op whether it runs before, and the work done.")
      .def(
          "flow",
          [](ClosureCutter& self, int32_t op) {
            CutFlow flow;
            {
              nb::gil_scoped_release released;
              flow = self.flow(op);
            }
            return std::make_tuple(to_numpy(std::move(flow.dependencies)), to_numpy(std::move(flow.uses)));
          },
          nb::arg("op"),
          "A maximum flow of `cut`: along dependencies as (later, earlier, bytes), and from buffers to what must run\n"
          "before they go as (buffer, op, bytes), one after the other.");
}

}  // namespace lowtide::bindings
