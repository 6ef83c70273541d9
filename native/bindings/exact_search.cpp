#include "kernels/exact_search.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/graph_view.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_exact_search(nb::module_& m) {
  nb::class_<ExactSearch>(m, "ExactSearch", "Finds an order within a budget, or the proof that there is none.")
      .def(
          "__init__",
          [](ExactSearch* self, const HeldGraphView& graph, int32_t space, bool in_place) {
            new (self) ExactSearch(graph.view, space, in_place);
          },
          nb::arg("graph"), nb::arg("space"), nb::arg("in_place"), nb::keep_alive<1, 2>())
      .def(
          "fit",
          [](ExactSearch& self, int64_t budget, Array<int32_t> preference, int64_t max_states) {
            FitResult result;
            {
              nb::gil_scoped_release released;
              result = self.fit(budget, span_of(preference), max_states);
            }
            return std::make_tuple(static_cast<int32_t>(result.status), to_numpy(std::move(result.order)),
                                   result.next_budget, result.states, result.flows);
          },
          nb::arg("budget"), nb::arg("preference"), nb::arg("max_states"),
          "Status (0 fits, 1 impossible, 2 stopped), order, next budget worth trying, states and flows spent.");
}

}  // namespace lowtide::bindings
