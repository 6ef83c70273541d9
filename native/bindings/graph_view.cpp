#include "bindings/graph_view.hpp"

#include "bindings/register.hpp"

namespace lowtide::bindings {
namespace {

template <class T>
std::span<const T> hold(HeldGraphView& graph, nb::handle array) {
  graph.held.push_back(nb::borrow(array));
  return span_of(nb::cast<Array<T>>(array));
}

Rows hold_rows(HeldGraphView& graph, nb::handle rows) {
  return {hold<int64_t>(graph, rows.attr("offsets")), hold<int32_t>(graph, rows.attr("values"))};
}

}  // namespace

void register_graph_view(nb::module_& m) {
  nb::class_<HeldGraphView>(m, "GraphView", "Borrowed flat arrays of a graph, as every scheduling kernel takes them.")
      .def(
          "__init__",
          [](HeldGraphView* self, nb::object graph, nb::object structure, Array<int64_t> scratch, int32_t n_spaces) {
            new (self) HeldGraphView();
            auto& view = self->view;
            view.sizes = hold<int64_t>(*self, graph.attr("sizes"));
            view.lifetimes = hold<uint8_t>(*self, graph.attr("lifetimes"));
            view.spaces = hold<int16_t>(*self, graph.attr("buffer_spaces"));
            view.in_place = hold_rows(*self, graph.attr("in_place"));
            view.producers = hold<int32_t>(*self, structure.attr("producers"));
            view.allocates = hold_rows(*self, structure.attr("allocates"));
            view.touches = hold_rows(*self, structure.attr("touches"));
            view.predecessors = hold_rows(*self, structure.attr("predecessors"));
            view.successors = hold_rows(*self, structure.attr("successors"));
            view.users = hold_rows(*self, structure.attr("users"));
            view.scratch = span_of(scratch);
            self->held.push_back(nb::cast(scratch));
            view.n_buffers = static_cast<int32_t>(view.sizes.size());
            view.n_ops = static_cast<int32_t>(view.allocates.count());
            view.n_spaces = n_spaces;
            if (view.scratch.size() != static_cast<size_t>(view.n_ops) * n_spaces)
              throw nb::value_error("scratch must hold one number per op and space");
          },
          nb::arg("graph"), nb::arg("structure"), nb::arg("scratch"), nb::arg("n_spaces"));
}

}  // namespace lowtide::bindings
