"""Plans and bounds of tiny graphs against the fastest of all schedules."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.offload import plan_within_budget, with_host_space
from lowtide.engine.offload.within_budget import prove_cost
from lowtide.engine.search.certificate import check_cost
from tests.oracles.broken_solvers import ALL_FAULTS, Faults, break_solver
from tests.oracles.least_slow_down import least_slow_down

pytest.importorskip("highspy")


def _tiny(seed: int) -> Graph:
    """Three results with sizes and costs of one to three, read again by three later ops."""
    random = Random(seed)
    builder = GraphBuilder(f"tiny {seed}")
    made = [builder.add_buffer("x", 1, Lifetime.INPUT)]
    for k in range(3):
        made.append(builder.add_buffer(f"a{k}", random.randint(1, 3)))
        reads = sorted({made[-2], random.choice(made[:-1])})
        builder.add_op(f"f{k}", "f", reads=reads, writes=[made[-1]], cost=float(random.randint(1, 3)))
    gradient = made[-1]
    for k in reversed(range(3)):
        lifetime = Lifetime.INTERMEDIATE if k else Lifetime.OUTPUT
        read, gradient = gradient, builder.add_buffer(f"g{k}", random.randint(1, 2), lifetime)
        reads = sorted({read, made[k], random.choice(made)})
        builder.add_op(f"b{k}", "b", reads=reads, writes=[gradient], cost=float(random.randint(1, 3)))
    return with_host_space(builder.build(), 1.0)


@cache
def _fastest(seed: int, budget: int) -> float | None:
    return least_slow_down(_tiny(seed), budget)


FITTING = (2, 3, 5, 6, 11, 12)
"""Seeds of graphs with a feasible budget below the peak."""


@pytest.mark.parametrize("seed", sorted({0, 1, *FITTING}))
def test_the_slow_down_is_above_its_bound_and_the_fastest_of_all_schedules(seed: int) -> None:
    graph = _tiny(seed)
    problem = Problem(graph, in_place=False)
    order = problem.given_order()
    peak = int(problem.evaluate(order).peaks[0])
    fastest = {budget: _fastest(seed, budget) for budget in (peak - 1, peak - 2, peak - 3)}
    assert (fastest[peak - 1] is not None) == (seed in FITTING)
    for budget, least in fastest.items():
        result = plan_within_budget(problem, order, budget)
        if least is None:
            assert not result.fits
        else:
            assert result.extra_cost_bound <= least + 1e-6
            assert not result.fits or result.extra_cost >= least - 1e-9


@pytest.mark.parametrize("faults", [ALL_FAULTS[0], ALL_FAULTS[4]])
def test_a_broken_solver_leads_to_no_false_bound(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    break_solver(monkeypatch, faults)
    for seed in FITTING[:4]:
        graph = _tiny(seed)
        problem = Problem(graph, in_place=False)
        order = problem.given_order()
        for budget in range(int(problem.evaluate(order).peaks[0]) - 3, int(problem.evaluate(order).peaks[0])):
            least = _fastest(seed, budget)
            result = plan_within_budget(problem, order, budget)
            assert least is None or (result.extra_cost_bound <= least + 1e-6 and result.status != "infeasible")
            assert result.status != "optimal" or result.extra_cost <= (least or 0.0) + 1e-6


def test_proofs_with_copies_show_their_bound_and_no_more_than_the_fastest_schedule() -> None:
    """The checker confirms the published bound, and every higher one that linear programs still show is true."""
    shown = 0
    for seed in FITTING:
        graph = _tiny(seed)
        problem = Problem(graph, in_place=False)
        peak = int(problem.evaluate(problem.given_order()).peaks[0])
        for budget in range(peak - 3, peak):
            least = _fastest(seed, budget)
            cost = plan_within_budget(problem, problem.given_order(), budget).provable_cost
            if least is None or cost is None or cost.at_least is None:
                continue
            for at_least in (cost.at_least, *(cost.at_least + step / 4 for step in range(1, 9))):
                proof = prove_cost(replace(cost, at_least=at_least), graph)
                if proof is not None:
                    assert at_least <= check_cost(graph, proof, in_place=False) <= least + 1e-6
                    shown += at_least > 0
    assert shown > 6
