#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>

#include "bindings/graph_view.hpp"
#include "bindings/monitor.hpp"
#include "bindings/register.hpp"
#include "kernels/recompute/cut.hpp"
#include "kernels/recompute/greedy.hpp"
#include "kernels/recompute/on_demand.hpp"
#include "kernels/recompute/sequence.hpp"

namespace lowtide::bindings {
namespace {

// Cuts, which Python calls drops, are passed as (moments, flat pairs of moment and buffer).
using FlatCuts = std::pair<Result<int32_t>, Result<int32_t>>;

// Lets a kernel play without the interpreter's lock; raises what a signal raised meanwhile.
template <class Kernel>
void play(RecomputeEvaluator& evaluator, Kernel kernel) {
  Monitor monitor;
  const std::function<bool()> go_on = [&] { return monitor.go_on(); };
  evaluator.watch(&go_on);
  {
    nb::gil_scoped_release released;
    kernel();
  }
  evaluator.watch(nullptr);
  monitor.raise();
}

struct HeldProgram {
  nb::object graph;
  std::unique_ptr<RecomputeProgram> program;
  std::unique_ptr<RecomputeEvaluator> evaluator;

  Cuts cuts_of(const Array<int32_t>& moments, const Array<int32_t>& listed) const {
    Cuts cuts;
    for (int32_t moment : span_of(moments)) cuts[moment];
    const auto flat = span_of(listed);
    for (size_t i = 0; i + 1 < flat.size(); i += 2) {
      if (flat[i + 1] < 0 || flat[i + 1] >= program->graph.n_buffers) throw nb::value_error("no such buffer");
      cuts[flat[i]].insert(flat[i + 1]);
    }
    return cuts;
  }
  std::vector<int32_t> runs_of(const Array<int32_t>& runs) const {
    const auto span = span_of(runs);
    for (int32_t op : span)
      if (op < 0 || op >= program->graph.n_ops) throw nb::value_error("no such op");
    return {span.begin(), span.end()};
  }
};

FlatCuts flat_of(const Cuts& cuts) {
  std::vector<int32_t> moments, listed;
  for (const auto& [moment, buffers] : cuts) {
    moments.push_back(moment);
    for (int32_t b : buffers) listed.insert(listed.end(), {moment, b});
  }
  return {to_numpy(std::move(moments)), to_numpy(std::move(listed))};
}

auto flat_of(Execution e) {
  std::vector<int32_t> pairs;
  for (size_t r = 0; r < e.runs.size(); ++r)
    for (int64_t p = e.first_pair[r]; p < e.first_pair[r + 1]; ++p)
      pairs.insert(pairs.end(), {static_cast<int32_t>(r), e.pairs[p].read, e.pairs[p].written});
  return std::make_tuple(to_numpy(std::move(e.runs)), to_numpy(std::move(e.stage)), to_numpy(std::move(e.live)),
                         to_numpy(std::move(e.dies)), to_numpy(std::move(pairs)), e.extra_cost, e.peak);
}

}  // namespace

void register_recompute(nb::module_& m) {
  nb::class_<HeldProgram>(m, "RecomputeProgram", "A base order whose ops may run again, with costs and rules.")
      .def(
          "__init__",
          [](HeldProgram* self, nb::object graph, Array<int32_t> order, Array<double> cost, Array<int32_t> rerun_until,
             int32_t space, bool in_place) {
            const auto& held = nb::cast<const HeldGraphView&>(graph);
            const auto ops = topological_order_of(held, order);
            if (cost.shape(0) != ops.size() || rerun_until.shape(0) != ops.size())
              throw nb::value_error("cost and rerun_until must hold one figure per op");
            if (space < 0 || space >= held.view.n_spaces) throw nb::value_error("no such memory space");
            new (self) HeldProgram();
            self->graph = graph;
            const auto costs = span_of(cost);
            const auto rules = span_of(rerun_until);
            self->program.reset(new RecomputeProgram{held.view,
                                                     {ops.begin(), ops.end()},
                                                     {costs.begin(), costs.end()},
                                                     {rules.begin(), rules.end()},
                                                     space,
                                                     in_place});
            self->program->derive();
            self->evaluator = std::make_unique<RecomputeEvaluator>(*self->program);
          },
          nb::arg("graph"), nb::arg("order"), nb::arg("cost"), nb::arg("rerun_until"), nb::arg("space"),
          nb::arg("in_place"))
      .def_prop_ro(
          "last_use", [](const HeldProgram& self) { return to_numpy(self.program->last_use); }, nb::rv_policy::move,
          "Per buffer, the moment of its last use in the base order, -1 where nothing uses it.")
      .def_prop_ro(
          "remakeable", [](const HeldProgram& self) { return to_numpy(self.program->remakeable); }, nb::rv_policy::move,
          "Per buffer, whether it may be dropped and made again.")
      .def_prop_ro(
          "work", [](const HeldProgram& self) { return self.evaluator->work(); }, "Accesses played so far.")
      .def(
          "execute",
          [](HeldProgram& self, Array<int32_t> moments, Array<int32_t> listed) {
            const Cuts cuts = self.cuts_of(moments, listed);
            Execution e;
            {
              nb::gil_scoped_release released;
              e = self.evaluator->run(cuts);
            }
            return flat_of(std::move(e));
          },
          nb::arg("moments"), nb::arg("listed"),
          "Runs, the place each runs for, live bytes, deaths per access, pairs (run, read, written), extra cost, peak.")
      .def(
          "trial",
          [](HeldProgram& self, Array<int32_t> moments, Array<int32_t> listed, int32_t moment, int32_t buffer,
             int64_t budget) {
            const Cuts cuts = self.cuts_of(moments, listed);
            if (cuts.count(moment) == 0) throw nb::value_error("there is no cut at this moment");
            if (buffer < 0 || buffer >= self.program->graph.n_buffers) throw nb::value_error("no such buffer");
            RecomputeTrials trials(*self.evaluator, budget);
            trials.begin(cuts);
            const Standing tried = trials.toggled(moment, buffer, {});
            const Standing kept = trials.toggle(moment, buffer);
            const Standing again = trials.toggled(moment, buffer, {});
            std::vector<std::tuple<double, int64_t, int64_t>> standings;
            for (const Standing& each : {tried, kept, again}) standings.push_back({each.cost, each.excess, each.peak});
            return standings;
          },
          nb::arg("moments"), nb::arg("listed"), nb::arg("moment"), nb::arg("buffer"), nb::arg("budget"),
          "Extra cost, bytes over the budget and peak: of cuts that list a buffer or no longer do, the same after they "
          "are kept, and of the cuts as given, tried from there.")
      .def(
          "fit",
          [](HeldProgram& self, Array<int32_t> moments, Array<int32_t> listed, int64_t budget, int64_t max_work,
             double max_cost) {
            Cuts cuts = self.cuts_of(moments, listed);
            bool fits;
            play(*self.evaluator, [&] {
              RecomputeGreedy greedy(*self.evaluator, budget, max_work);
              fits = greedy.fit(cuts, max_cost);
              if (fits) greedy.trim(cuts);
            });
            const auto [new_moments, new_listed] = flat_of(cuts);
            return std::make_tuple(fits, new_moments, new_listed);
          },
          nb::arg("moments"), nb::arg("listed"), nb::arg("budget"), nb::arg("max_work"),
          nb::arg("max_cost") = std::numeric_limits<double>::infinity(),
          "Whether more drops met the budget at no more than this extra cost, and the cuts then.")
      .def(
          "replay",
          [](HeldProgram& self, Array<int32_t> runs) {
            const auto sequence = self.runs_of(runs);
            Execution e;
            {
              nb::gil_scoped_release released;
              e = self.evaluator->replay(sequence);
            }
            return flat_of(std::move(e));
          },
          nb::arg("runs"), "What `execute` returns, for runs as they are.")
      .def(
          "settle",
          [](HeldProgram& self, Array<int32_t> runs, Array<double> weights, int64_t budget, int64_t reserve, int pick,
             double max_cost, int64_t max_work) {
            auto sequence = self.runs_of(runs);
            if (weights.shape(0) != static_cast<size_t>(self.program->graph.n_ops))
              throw nb::value_error("weights must hold one figure per op");
            bool fits;
            play(*self.evaluator, [&] {
              RecomputeSequence trader(*self.evaluator, span_of(weights), budget, max_work);
              fits = trader.settle(sequence, static_cast<Pick>(pick), reserve, max_cost);
            });
            return std::make_tuple(fits, to_numpy(std::move(sequence)));
          },
          nb::arg("runs"), nb::arg("weights"), nb::arg("budget"), nb::arg("reserve"), nb::arg("pick"),
          nb::arg("max_cost"), nb::arg("max_work"),
          "Whether trading at the worst (pick 0), first (1) or last (2) run over the budget met it, and the runs then.")
      .def(
          "trim_runs",
          [](HeldProgram& self, Array<int32_t> runs, int64_t budget, int64_t max_work) {
            auto sequence = self.runs_of(runs);
            play(*self.evaluator,
                 [&] { RecomputeSequence(*self.evaluator, self.program->cost, budget, max_work).trim(sequence); });
            return to_numpy(std::move(sequence));
          },
          nb::arg("runs"), nb::arg("budget"), nb::arg("max_work"), "The runs without those that the budget can spare.")
      .def(
          "on_demand",
          [](HeldProgram& self, int64_t budget, double size_power, double distance_power, bool hardest_first,
             int64_t max_work) {
            std::vector<int32_t> runs;
            play(*self.evaluator, [&] {
              runs = RecomputeOnDemand(*self.evaluator, budget, max_work).run({size_power, distance_power, hardest_first});
            });
            return to_numpy(std::move(runs));
          },
          nb::arg("budget"), nb::arg("size_power"), nb::arg("distance_power"), nb::arg("hardest_first"),
          nb::arg("max_work"), "Runs within the budget by making again what is missing; empty where that fails.")
      .def(
          "trade_at_cut",
          [](const HeldProgram& self, Array<uint8_t> at_cut, Array<uint8_t> needed, Array<int64_t> bytes,
             int64_t capacity, int32_t max_cuts) {
            const auto n_buffers = static_cast<size_t>(self.program->graph.n_buffers);
            if (at_cut.shape(0) != n_buffers || needed.shape(0) != n_buffers || bytes.shape(0) != n_buffers)
              throw nb::value_error("at_cut, needed and bytes must hold one figure per buffer");
            CutTrade trade;
            {
              nb::gil_scoped_release released;
              trade = trade_at_cut({self.program->graph, span_of(at_cut), span_of(needed), span_of(bytes),
                                    self.program->cost, capacity},
                                   max_cuts);
            }
            return std::make_tuple(trade.bound, trade.fits, to_numpy(std::move(trade.kept)),
                                   to_numpy(std::move(trade.tight)));
          },
          nb::arg("at_cut"), nb::arg("needed"), nb::arg("bytes"), nb::arg("capacity"), nb::arg("max_cuts"),
          "A bound on the cost after a cut, whether a choice fits, what it keeps, and what one slightly over keeps.");
}

}  // namespace lowtide::bindings
