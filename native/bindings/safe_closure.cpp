#include "kernels/search/safe_closure.hpp"

#include "bindings/graph_view.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_safe_closure(nb::module_& m) {
  m.def(
      "close_order",
      [](const HeldGraphView& graph, Array<int32_t> order, bool in_place) {
        const auto ops = topological_order_of(graph, order);
        std::vector<int32_t> closed;
        {
          nb::gil_scoped_release released;
          closed = close_order(graph.view, in_place, ops);
        }
        return to_numpy(std::move(closed));
      },
      nb::arg("graph"), nb::arg("order"), nb::arg("in_place"),
      "The order with ops moved to where they run for free: first earlier, then later. Its peak is never higher.");
}

}  // namespace lowtide::bindings
