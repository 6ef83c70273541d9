#include "kernels/search/fit_search.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/graph_view.hpp"
#include "bindings/monitor.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_fit_search(nb::module_& m) {
  m.def(
      "find_fit",
      [](const HeldGraphView& graph, bool in_place, Array<int64_t> budget, Array<int32_t> preference,
         int64_t max_work) {
        if (budget.shape(0) != static_cast<size_t>(graph.view.n_spaces))
          throw nb::value_error("budget must hold one figure per space");
        const auto ties = order_of(graph, preference);
        FitResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          const auto limits = span_of(budget);
          result = find_fit(graph.view, in_place, Bytes(limits.begin(), limits.end()), ties,
                            {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(static_cast<int32_t>(result.fit), to_numpy(std::move(result.order)),
                               to_numpy(std::move(result.next_budget)), result.states, result.flows, result.edges,
                               result.work);
      },
      nb::arg("graph"), nb::arg("in_place"), nb::arg("budget"), nb::arg("preference"), nb::arg("max_work"),
      "0 found, 1 impossible or 2 stopped; the order; per space the least figure above the budget that was met; then "
      "states, flows, added dependencies and work.");
}

}  // namespace lowtide::bindings
