#include "kernels/recompute/states.hpp"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/monitor.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {
namespace {

using Ids = std::vector<int32_t>;
using Pairs = std::vector<std::tuple<int32_t, int32_t, int32_t>>;
using OpRow = std::tuple<Ids, Ids, Ids, Ids, Ids, Pairs, int64_t, double, bool>;

void check(const Ids& ids, size_t count) {
  for (int32_t id : ids)
    if (id < 0 || id >= static_cast<int32_t>(count)) throw nb::value_error("no such op or item");
}

StatesOp op_of(const OpRow& row, size_t n_ops, size_t n_items) {
  const auto& [before, needs, leaves, replaces, own, pairs, bytes, cost, again] = row;
  check(before, n_ops);
  for (const auto* items : {&needs, &leaves, &replaces, &own}) check(*items, n_items);
  StatesOp op{before, needs, leaves, replaces, own, {}, bytes, cost, again};
  for (const auto& [read, written, left] : pairs) {
    check({read, std::max(left, 0)}, n_items);
    op.pairs.push_back({read, written, left});
  }
  return op;
}

}  // namespace

void register_recompute_states(nb::module_& m) {
  m.attr("MOST_STATE_OPS") = kMostStateOps;
  m.attr("MOST_STATE_ITEMS") = kMostStateItems;
  m.def(
      "search_states",
      [](const std::vector<int64_t>& item_bytes, const std::vector<bool>& may_go, const std::vector<OpRow>& ops,
         const Ids& at_start, const Ids& at_end, int64_t start_bytes, int64_t always_bytes, int64_t budget,
         int64_t max_work) {
        if (ops.size() > kMostStateOps || item_bytes.size() > kMostStateItems || may_go.size() != item_bytes.size())
          throw nb::value_error("too many ops or items");
        StatesProblem problem;
        for (const auto& row : ops) problem.ops.push_back(op_of(row, ops.size(), item_bytes.size()));
        check(at_start, item_bytes.size());
        check(at_end, item_bytes.size());
        problem.item_bytes = item_bytes;
        problem.may_go.assign(may_go.begin(), may_go.end());
        problem.at_start = at_start;
        problem.at_end = at_end;
        problem.start_bytes = start_bytes;
        problem.always_bytes = always_bytes;
        StatesResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = search_states(problem, budget, max_work, [&] { return monitor.go_on(); });
        }
        monitor.raise();
        return std::make_tuple(static_cast<int32_t>(result.end), to_numpy(std::move(result.runs)), result.bound,
                               result.states, result.work);
      },
      nb::arg("item_bytes"), nb::arg("may_go"), nb::arg("ops"), nb::arg("at_start"), nb::arg("at_end"),
      nb::arg("start_bytes"), nb::arg("always_bytes"), nb::arg("budget"), nb::arg("max_work"),
      "0 found, 1 impossible or 2 stopped; the runs; a bound of their extra cost; then states and work. A row of ops holds "
      "before, needs, leaves, replaces, own, pairs (read, written, left), bytes, cost, and whether it may run again.");
}

}  // namespace lowtide::bindings
