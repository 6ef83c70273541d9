#include "kernels/program/evaluate.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/graph_view.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_evaluate(nb::module_& m) {
  m.def(
      "evaluate",
      [](const HeldGraphView& graph, Array<int32_t> order, bool in_place) {
        const auto ops = order_of(graph, order);
        Evaluation evaluation;
        {
          nb::gil_scoped_release released;
          evaluation = evaluate(graph.view, ops, in_place);
        }
        std::vector<int32_t> pairs;
        pairs.reserve(evaluation.pairs.size() * 3);
        for (const auto& pair : evaluation.pairs) pairs.insert(pairs.end(), {pair.op, pair.read, pair.written});
        return std::make_tuple(to_numpy(std::move(evaluation.peaks)), to_numpy(std::move(evaluation.peak_places)),
                               to_numpy(std::move(pairs)));
      },
      nb::arg("graph"), nb::arg("order"), nb::arg("in_place"),
      "Peaks and their first positions per space, and the in-place pairs taken (op, read, written, ...).");
  m.def(
      "profile",
      [](const HeldGraphView& graph, Array<int32_t> order, bool in_place) {
        const auto ops = order_of(graph, order);
        nb::gil_scoped_release released;
        auto profile = evaluate(graph.view, ops, in_place, true).profile;
        nb::gil_scoped_acquire acquired;
        return to_numpy(std::move(profile));
      },
      nb::arg("graph"), nb::arg("order"), nb::arg("in_place"),
      "Live bytes while each op of the order runs, per position and space, row by row.");
}

}  // namespace lowtide::bindings
