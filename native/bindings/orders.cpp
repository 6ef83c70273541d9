#include "kernels/orders/orders.hpp"

#include <nanobind/stl/string_view.h>

#include "bindings/graph_view.hpp"
#include "bindings/register.hpp"
#include "kernels/orders/name_ranks.hpp"

namespace lowtide::bindings {
namespace {

// Runs a kernel without the GIL and hands its order to NumPy.
template <class Kernel>
Result<int32_t> released(Kernel kernel) {
  Order order;
  {
    nb::gil_scoped_release no_gil;
    order = kernel();
  }
  return to_numpy(std::move(order));
}

std::span<const int32_t> ranks_of(const HeldGraphView& graph, const Array<int32_t>& name_ranks) {
  if (name_ranks.shape(0) != static_cast<size_t>(graph.view.n_ops))
    throw nb::value_error("name_ranks must hold one number per op");
  return span_of(name_ranks);
}

Rows reads_of(const HeldGraphView& graph, const Array<int64_t>& offsets, const Array<int32_t>& values) {
  if (offsets.shape(0) != static_cast<size_t>(graph.view.n_ops) + 1)
    throw nb::value_error("reads must hold one row per op");
  return rows_of(offsets, values);
}

}  // namespace

void register_orders(nb::module_& m) {
  m.def(
      "name_ranks",
      [](nb::typed<nb::sequence, nb::str> names) {
        std::vector<std::string_view> views;
        views.reserve(nb::len(names));
        for (nb::handle name : names) views.push_back(nb::cast<std::string_view>(name));
        return to_numpy(name_ranks(views));
      },
      nb::arg("names"), "Per name, its place among all names in sorted order.");
  m.def(
      "mesh_list",
      [](const HeldGraphView& graph, Array<int32_t> name_ranks) {
        const auto ranks = ranks_of(graph, name_ranks);
        return released([&] { return mesh_list(graph.view, ranks); });
      },
      nb::arg("graph"), nb::arg("name_ranks"), "Order of Mesh-TensorFlow's list scheduler.");
  m.def(
      "mesh_list_original",
      [](const HeldGraphView& graph, Array<int64_t> read_offsets, Array<int32_t> reads, Array<int32_t> name_ranks) {
        const auto rows = reads_of(graph, read_offsets, reads);
        const auto ranks = ranks_of(graph, name_ranks);
        return released([&] { return mesh_list(graph.view, ranks, &rows); });
      },
      nb::arg("graph"), nb::arg("read_offsets"), nb::arg("reads"), nb::arg("name_ranks"),
      "Order of Mesh-TensorFlow's list scheduler with the defects of the original.");
  m.def(
      "xla_list", [](const HeldGraphView& graph) { return released([&] { return xla_list(graph.view); }); },
      nb::arg("graph"), "Order of XLA's list scheduler.");
  m.def(
      "xla_postorder",
      [](const HeldGraphView& graph, Array<int64_t> read_offsets, Array<int32_t> reads) {
        const auto rows = reads_of(graph, read_offsets, reads);
        return released([&] { return xla_postorder(graph.view, rows); });
      },
      nb::arg("graph"), nb::arg("read_offsets"), nb::arg("reads"), "Order of XLA's post-order scheduler.");
  m.def(
      "xla_dfs",
      [](const HeldGraphView& graph, Array<int64_t> read_offsets, Array<int32_t> reads, Array<int32_t> name_ranks) {
        const auto rows = reads_of(graph, read_offsets, reads);
        const auto ranks = ranks_of(graph, name_ranks);
        return released([&] { return xla_dfs(graph.view, rows, ranks); });
      },
      nb::arg("graph"), nb::arg("read_offsets"), nb::arg("reads"), nb::arg("name_ranks"),
      "Order of XLA's depth-first scheduler.");
  m.def(
      "lpmf",
      [](const HeldGraphView& graph, int64_t threshold) {
        return released([&] { return lpmf(graph.view, threshold); });
      },
      nb::arg("graph"), nb::arg("threshold"), "Order of Inductor's least-peak-memory-first scheduler.");
  m.def(
      "bfs", [](const HeldGraphView& graph) { return released([&] { return bfs(graph.view); }); }, nb::arg("graph"),
      "Order of Inductor's breadth-first scheduler.");
  m.def(
      "dfs", [](const HeldGraphView& graph) { return released([&] { return dfs(graph.view); }); }, nb::arg("graph"),
      "Order of Inductor's depth-first scheduler.");
  m.def(
      "longest_path",
      [](const HeldGraphView& graph, int64_t max_work) {
        return released([&] { return longest_path(graph.view, max_work); });
      },
      nb::arg("graph"), nb::arg("max_work"), "Order of memonger's longest paths.");
  m.def(
      "longest_path_merged",
      [](const HeldGraphView& graph) { return released([&] { return longest_path_merged(graph.view); }); },
      nb::arg("graph"), "Order that starts the sources with the longest paths first, ties in program order.");
}

}  // namespace lowtide::bindings
