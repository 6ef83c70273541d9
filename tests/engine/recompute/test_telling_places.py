"""What single places of a base order show, alone and together, against the least cost of all plans on small graphs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lowtide
from lowtide.engine.analysis import Problem
from lowtide.engine.costs import price
from lowtide.engine.recompute import Drops, Program, floor_of
from lowtide.engine.recompute.floor import needs_by_place
from lowtide.engine.recompute.place_model import PlaceModel
from lowtide.engine.recompute.solver import relax, solve
from lowtide.engine.recompute.telling_places import Telling, telling_places, telling_together
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import random_graph

GRAPHS = Path(__file__).parents[3] / "benchmarks" / "graphs"


def reachable_budgets(*, in_place: bool) -> Iterator[tuple[Program, int]]:
    """Yield programs with every budget from below their peak down to their floor."""
    graphs = [skipping_graph(seed) for seed in range(40)] + [random_graph(seed, 3 + seed % 3) for seed in range(20)]
    for graph in graphs:
        problem = problem_of(graph, in_place=in_place)
        program = Program(problem, problem.given_order(), graph.cost)
        for budget in range(floor_of(program).peak_bytes, program.execute(Drops()).peak_bytes):
            yield program, budget


def tellings(program: Program, budget: int) -> list[Telling]:
    return telling_places(program, needs_by_place(program), program.execute(Drops()).live, budget)


@pytest.mark.parametrize("in_place", [False, True])
def test_no_place_shows_more_than_the_least_cost_of_all_plans(in_place: bool) -> None:
    """Every place over the budget is weighed, the dearest first, and none is above the least cost; some are at it."""
    tight = 0
    for program, budget in reachable_budgets(in_place=in_place):
        found = tellings(program, budget)
        bounds = [telling.bound for telling in found]
        over = np.flatnonzero(program.execute(Drops()).live > budget)
        assert sorted(telling.place for telling in found) == over.tolist()
        assert bounds == sorted(bounds, reverse=True)
        least = least_extra_cost(program.problem, budget)
        assert bounds[:1] <= [least + 1e-9]
        tight += bounds[:1] == [least]
    assert tight > 5


@pytest.mark.parametrize("in_place", [False, True])
def test_places_together_show_at_least_what_the_dearest_shows_and_no_more_than_is_true(in_place: bool) -> None:
    """The linear relaxation over them lies between the dearest place alone and the least cost of all plans."""
    pytest.importorskip("highspy")
    for program, budget in reachable_budgets(in_place=in_place):
        alone = tellings(program, budget)
        if not alone:
            continue
        places, bound, _ = telling_together(PlaceModel(program), alone, budget, 10_000_000)
        assert alone[0].place in places
        assert places == sorted(set(places))
        assert alone[0].bound <= bound <= least_extra_cost(program.problem, budget) + 1e-9


def test_a_relaxed_program_costs_no_more_than_the_program_and_stops_at_its_limit() -> None:
    pytest.importorskip("highspy")
    for program, budget in list(reachable_budgets(in_place=True))[::7]:
        milp = PlaceModel(program).build([int(program.execute(Drops()).live.argmax())], budget).milp
        bound, work = relax(milp, max_work=10_000_000)
        assert work > 0
        assert bound <= solve(milp, None, relative_gap=0.0, max_work=10_000_000).lower_bound + 1e-5
        assert relax(milp, max_work=0)[0] in (0.0, bound, float("inf"))


def test_the_place_that_says_most_of_a_residual_network_is_not_where_it_needs_most() -> None:
    """At half of its peak the dearest place bounds the cost three times as high as the one at the peak."""
    graph = lowtide.read(GRAPHS / "remat_resnet50_b16.joint.graph.json.gz")
    problem = Problem(graph)
    program = Program(problem, problem.given_order(), price(graph, "eager").seconds)
    live = program.execute(Drops()).live
    found = tellings(program, int(live.max()) // 2)
    at_peak = next(telling.bound for telling in found if telling.place == int(live.argmax()))
    assert found[0].bound > 3 * at_peak > 0
