#include "kernels/orders/tree_order.hpp"

#include "bindings/graph_view.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_tree_order(nb::module_& m) {
  m.def(
      "tree_order",
      [](const HeldGraphView& graph, bool in_place) {
        std::vector<int32_t> order;
        {
          nb::gil_scoped_release released;
          order = tree_order(graph.view, in_place);
        }
        return to_numpy(std::move(order));
      },
      nb::arg("graph"), nb::arg("in_place"),
      "An order of least peak where the graph is a forest of in-trees; nothing where it is not.");
}

}  // namespace lowtide::bindings
