"""Plans that make again on demand what is missing."""

import pytest

from lowtide.engine.graph import Graph
from lowtide.engine.plan import verify
from lowtide.engine.recompute import Drops, Program, floor_of, plan_within_budget
from lowtide.engine.recompute.on_demand import lowest_on_demand, on_demand
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import random_graph

WORK = 10_000_000


def _program(graph: Graph, *, in_place: bool = True) -> Program:
    problem = problem_of(graph, in_place=in_place)
    return Program(problem, problem.given_order(), graph.cost)


@pytest.mark.parametrize("in_place", [False, True])
def test_every_plan_is_correct_within_its_budget_and_no_cheaper_than_the_cheapest(in_place: bool) -> None:
    """On small graphs with every feature, at every budget; many of the budgets that some plan meets are met."""
    met, found = 0, 0
    graphs = [skipping_graph(seed) for seed in range(60)] + [random_graph(seed, 3 + seed % 4) for seed in range(60)]
    for graph in graphs:
        program = _program(graph, in_place=in_place)
        for budget in range(program.execute(Drops()).peak_bytes - 1, floor_of(program).peak_bytes - 1, -1):
            least = least_extra_cost(program.problem, budget)
            execution = on_demand(program, budget, WORK)
            met += least < float("inf")
            if execution is not None:
                found += 1
                assert execution.peak_bytes <= budget
                assert execution.extra_cost >= least
                verify(graph, program.plan(execution), check_capacity=False)
    assert met > 50
    assert found >= 0.4 * met


@pytest.mark.parametrize(("depth", "above"), [(10, 0), (20, 0), (100, 8)])
def test_a_chain_runs_at_its_floor(depth: int, above: int) -> None:
    """A residual chain needs four buffers at once; a long one takes one more, since reruns are limited."""
    program = _program(residual_chain(depth))
    floor = floor_of(program).peak_bytes
    lowest = lowest_on_demand(program, floor, program.execute(Drops()).peak_bytes, 100 * WORK)
    assert lowest is not None
    assert lowest.peak_bytes == floor + above
    verify(program.problem.graph, program.plan(lowest), check_capacity=False)


def test_the_same_work_gives_the_same_plan_and_none_gives_none() -> None:
    program = _program(residual_chain(30))
    budget = 2 * floor_of(program).peak_bytes
    first, second = on_demand(program, budget, WORK), on_demand(_program(residual_chain(30)), budget, WORK)
    assert first is not None
    assert second is not None
    assert first.runs.tolist() == second.runs.tolist()
    assert on_demand(program, budget, 0) is None


def test_a_budget_at_the_floor_of_a_chain_is_met_without_exact_search() -> None:
    problem = problem_of(residual_chain(20))
    order = problem.given_order()
    floor = floor_of(Program(problem, order, problem.graph.cost)).peak_bytes
    assert plan_within_budget(problem, order, floor, effort="fast", exact=False).fits
