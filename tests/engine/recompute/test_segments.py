"""Repeated layers are detected, cut where the fewest bytes cross, and planned no worse than textbook checkpointing."""

import numpy as np
import pytest

from lowtide.core.effort import RECOMPUTE_EFFORTS
from lowtide.engine.analysis import Problem
from lowtide.engine.plan import verify
from lowtide.engine.recompute import BudgetSearch, Drops, OrderedProgram, budget_search, plan_within_budget
from lowtide.engine.recompute.repeats import Stretch, longest_stretch, op_classes
from lowtide.engine.recompute.segments import checkpoint_drops, repeated_layers
from tests.oracles.layered_step import layered_step
from tests.strategies import random_graph

LAYERS, OPS_A_LAYER = 40, 5
TURN = LAYERS * OPS_A_LAYER


def _program(layers: int = LAYERS) -> OrderedProgram:
    graph = layered_step(layers)
    problem = Problem(graph)
    return OrderedProgram(problem, problem.given_order(), graph.cost)


def _at_peak(program: OrderedProgram) -> int:
    baseline = program.execute(Drops())
    return int(baseline.stages[int(baseline.live.argmax())])


def test_layers_are_found_as_the_shortest_period_of_the_longest_stretch() -> None:
    classes = op_classes(layered_step(LAYERS), range(TURN))
    assert longest_stretch(classes) == Stretch(0, TURN, OPS_A_LAYER)


def test_a_program_without_layers_repeats_nothing() -> None:
    for seed in range(20):
        assert longest_stretch(op_classes(random_graph(seed, 6), range(2))) is None
    assert repeated_layers(_program(2), 2 * OPS_A_LAYER) is None


@pytest.mark.parametrize(("layers", "growth", "kept"), [(1, 0.0, 40), (4, 0.0, 10), (1, 0.5, 8)])
def test_segments_keep_one_sum_each(layers: int, growth: float, kept: int) -> None:
    program = _program()
    found = repeated_layers(program, TURN)
    assert found is not None
    staying = np.flatnonzero(found.kept_between_segments(layers, growth))
    names = [program.problem.graph.buffer_names[buffer] for buffer in staying.tolist()]
    assert all(name.startswith("sum") for name in names)
    assert len(names) == kept


def test_checkpoints_recompute_a_segment_from_the_buffers_at_its_cut() -> None:
    """Sums are unused in the backward pass. If they were dropped, every segment would start from the first layer."""
    program = _program()
    peaks = [program.execute(drops).peak_bytes for drops in checkpoint_drops(program, _at_peak(program))]
    by_layer = LAYERS + 2 * 24
    assert min(peaks) <= by_layer


@pytest.mark.parametrize("budget", [700, 400, 200, 110])
def test_a_plan_of_layers_costs_no_more_than_textbook_checkpoints(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    """The search of large programs ends there. Here, all programs count as large."""
    monkeypatch.setattr(budget_search, "_LARGE_PROGRAM_OPS", 0)
    program = _program()
    textbook = [program.execute(drops) for drops in checkpoint_drops(program, _at_peak(program))]
    cheapest = min(plan.extra_cost for plan in textbook if plan.peak_bytes <= budget)
    search, effort = BudgetSearch(program), RECOMPUTE_EFFORTS["fast"]
    found = search.begin(budget, effort, exact=False)
    search.choose_drops(found, effort)
    assert found.fits
    assert found.execution.extra_cost <= cheapest
    assert found.bound <= found.execution.extra_cost
    verify(program.problem.graph, program.plan(found.execution))


def test_plans_of_layers_are_near_their_bound() -> None:
    graph = layered_step(LAYERS)
    problem = Problem(graph)
    result = plan_within_budget(problem, problem.given_order(), 400, effort="fast", exact=False)
    assert result.fits
    assert result.extra_cost <= 1.05 * result.extra_cost_bound


@pytest.mark.parametrize("negligible", [0.0, 0.005])
def test_a_budget_below_the_lower_bound_gives_a_peak_near_it(
    monkeypatch: pytest.MonkeyPatch, negligible: float
) -> None:
    """Recomputation on demand fails. All programs count as large.

    With a negligible cost, higher targets are planned in large programs only.
    """
    monkeypatch.setattr(budget_search, "lowest_on_demand", lambda *_: None)
    search, effort = BudgetSearch(_program(), negligible), RECOMPUTE_EFFORTS["fast"]
    least = search.floor.peak_bytes
    with monkeypatch.context() as without:
        without.setattr(budget_search, "_TARGETS", 0)
        before = search.plan(least - 1, effort, exact=False)
    monkeypatch.setattr(budget_search, "_MAX_OPS_ON_DEMAND", 0)
    after = search.plan(least - 1, effort, exact=False)
    assert not after.fits
    assert after.extra_cost_bound == float("inf")
    assert after.peak_bytes < before.peak_bytes
    assert after.peak_bytes <= search.plan(least, effort, exact=False).peak_bytes
