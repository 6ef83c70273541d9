"""Drops chosen greedily and bounds from places, against the lowest cost of all plans on small graphs."""

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.engine.analysis import Problem
from lowtide.engine.costs import price
from lowtide.engine.graph import Graph
from lowtide.engine.recompute import Drops, OrderedProgram, floor_of
from lowtide.engine.recompute.choose_drops import PlaceBound, bounds_by_place, drop_until_it_fits
from lowtide.engine.recompute.floor import needs_by_place
from lowtide.engine.recompute.place_model import PlaceModel
from lowtide.engine.recompute.program import Execution
from lowtide.engine.recompute.solver import relax, solve
from lowtide.engine.recompute.solver_search import strongest_places
from tests.examples import examples
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import graphs, random_graph


@examples(150)
@given(graphs(24), st.integers(0, 100))
def test_dropping_returns_whether_the_budget_is_met(graph: Graph, percent: int) -> None:
    problem = problem_of(graph)
    program = OrderedProgram(problem, problem.given_order(), graph.cost)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    fits, drops = drop_until_it_fits(program, Drops(), budget, 10_000_000)
    assert fits == (program.execute(drops).peak_bytes <= budget)


@examples(100)
@given(graphs(24), st.integers(0, 100), st.floats(0, 1))
def test_plans_of_drops_cost_at_most_the_limit(graph: Graph, percent: int, share: float) -> None:
    problem = problem_of(graph)
    program = OrderedProgram(problem, problem.given_order(), graph.cost)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    limit = share * float(graph.cost.sum())
    fits, drops = drop_until_it_fits(program, Drops(), budget, 10_000_000, limit)
    dropped = program.execute(drops)
    assert not fits or (dropped.peak_bytes <= budget and dropped.extra_cost <= limit)


@examples(300)
@given(graphs(24).filter(lambda graph: graph.n_buffers > 0), st.integers(0, 100), st.data())
def test_a_trial_equals_a_full_execution(graph: Graph, percent: int, data: st.DataObject) -> None:
    """One listed buffer changes, is changed for good, and is changed back."""
    problem = problem_of(graph)
    program = OrderedProgram(problem, problem.given_order(), graph.cost)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    places, buffers = st.integers(0, 2 * graph.n_ops + 1), st.integers(0, graph.n_buffers - 1)
    moments = sorted(data.draw(st.sets(places, min_size=1, max_size=6)))
    listed = {moment: data.draw(st.sets(buffers)) for moment in moments}
    moment, buffer = data.draw(st.sampled_from(moments)), data.draw(buffers)
    given = _drops(listed)
    trials = program.native.trial(given.moments, given.listed.ravel(), moment, buffer, budget)
    changed = program.execute(_drops({**listed, moment: listed[moment] ^ {buffer}}))
    assert trials == [_standing(execution, budget) for execution in (changed, changed, program.execute(given))]


def _drops(listed: dict[int, set[int]]) -> Drops:
    rows = [(moment, buffer) for moment, buffers in listed.items() for buffer in sorted(buffers)]
    return Drops(np.asarray(list(listed), np.int32), np.asarray(rows, np.int32).reshape(-1, 2))


def _standing(execution: Execution, budget: int) -> tuple[float, int, int]:
    return execution.extra_cost, int(np.maximum(execution.live - budget, 0).sum()), execution.peak_bytes


def test_nothing_is_dropped_without_work() -> None:
    problem = problem_of(residual_chain(12))
    program = OrderedProgram(problem, problem.given_order(), problem.graph.cost)
    fits, drops = drop_until_it_fits(program, Drops(), 1, 0)
    assert not fits
    assert not len(drops.moments)


def test_an_interrupt_is_heeded_while_dropping() -> None:
    """The kernel stops before it has done the work of a full run."""
    problem = problem_of(residual_chain(300))
    program = OrderedProgram(problem, problem.given_order(), problem.graph.cost)
    impossible = floor_of(program).peak_bytes - 1
    drop_until_it_fits(program, Drops(), impossible, 10**9)
    full_work = program.native.work
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.005)
    try:
        with pytest.raises(KeyboardInterrupt):
            drop_until_it_fits(program, Drops(), impossible, 10**9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert program.native.work - full_work < full_work


GRAPHS = Path(__file__).parents[3] / "benchmarks" / "graphs"


def reachable_budgets(*, in_place: bool) -> Iterator[tuple[OrderedProgram, int]]:
    """Yield programs with every budget from below their peak down to their floor."""
    graphs = [skipping_graph(seed) for seed in range(40)] + [random_graph(seed, 3 + seed % 3) for seed in range(20)]
    for graph in graphs:
        problem = problem_of(graph, in_place=in_place)
        program = OrderedProgram(problem, problem.given_order(), graph.cost)
        for budget in range(floor_of(program).peak_bytes, program.execute(Drops()).peak_bytes):
            yield program, budget


def place_bounds(program: OrderedProgram, budget: int) -> list[PlaceBound]:
    return bounds_by_place(program, needs_by_place(program), program.execute(Drops()).live, budget)


@pytest.mark.parametrize("in_place", [False, True])
def test_no_bound_from_a_place_exceeds_the_lowest_cost_of_all_plans(in_place: bool) -> None:
    """Every place over the budget has a bound, the highest first, and some bounds are tight."""
    tight = 0
    for program, budget in reachable_budgets(in_place=in_place):
        found = place_bounds(program, budget)
        bounds = [each.bound for each in found]
        over = np.flatnonzero(program.execute(Drops()).live > budget)
        assert sorted(each.place for each in found) == over.tolist()
        assert bounds == sorted(bounds, reverse=True)
        least = least_extra_cost(program.problem, budget)
        assert bounds[:1] <= [least + 1e-9]
        tight += bounds[:1] == [least]
    assert tight > 5


@pytest.mark.parametrize("in_place", [False, True])
def test_the_joint_bound_is_between_the_highest_bound_and_the_lowest_cost(in_place: bool) -> None:
    pytest.importorskip("highspy")
    for program, budget in reachable_budgets(in_place=in_place):
        bounds = place_bounds(program, budget)
        if not bounds:
            continue
        places, bound, _ = strongest_places(PlaceModel(program), bounds, budget, 10_000_000)
        assert bounds[0].place in places
        assert places == sorted(set(places))
        assert bounds[0].bound <= bound <= least_extra_cost(program.problem, budget) + 1e-9


def test_a_relaxed_program_costs_no_more_than_the_program_and_stops_at_its_limit() -> None:
    pytest.importorskip("highspy")
    for program, budget in list(reachable_budgets(in_place=True))[::7]:
        milp = PlaceModel(program).build([int(program.execute(Drops()).live.argmax())], budget).milp
        bound, work = relax(milp, max_work=10_000_000)
        assert work > 0
        assert bound <= solve(milp, None, relative_gap=0.0, max_work=10_000_000).claimed_bound + 1e-5
        assert relax(milp, max_work=0)[0] in (0.0, bound, float("inf"))


def test_the_strongest_place_of_a_residual_network_is_not_at_its_peak() -> None:
    """At half of its peak, the highest bound is three times that of the place at the peak."""
    graph = lowtide.read(GRAPHS / "remat_resnet50_b16.joint.graph.json.gz")
    problem = Problem(graph)
    program = OrderedProgram(problem, problem.given_order(), price(graph, "eager").seconds)
    live = program.execute(Drops()).live
    found = place_bounds(program, int(live.max()) // 2)
    at_peak = next(each.bound for each in found if each.place == int(live.argmax()))
    assert found[0].bound > 3 * at_peak > 0
