#include "kernels/search/refutation.hpp"

#include "bindings/graph_view.hpp"
#include "bindings/monitor.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_refutation(nb::module_& m) {
  m.def(
      "refute",
      [](const HeldGraphView& graph, int32_t space, bool in_place, int64_t budget, Array<int32_t> worst_first,
         int64_t max_work) {
        const auto ops = order_of(graph, worst_first);
        std::vector<RefutationLine> lines;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          lines = refute(graph.view, space, in_place, budget, ops, max_work, [&] { return monitor.go_on(); });
        }
        monitor.raise();
        std::vector<int32_t> flat;
        for (const auto& line : lines) flat.insert(flat.end(), line.values.begin(), line.values.end());
        return to_numpy(std::move(flat));
      },
      nb::arg("graph"), nb::arg("space"), nb::arg("in_place"), nb::arg("budget"), nb::arg("worst_first"),
      nb::arg("max_work"), "The lines of a refutation, four numbers each; nothing where none was found.");
}

}  // namespace lowtide::bindings
