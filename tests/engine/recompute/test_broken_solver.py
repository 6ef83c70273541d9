"""Solvers that are broken on purpose: the search may end early, but no result claims anything false."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from lowtide.core.effort import RECOMPUTE_EFFORTS
from lowtide.core.errors import ProofError
from lowtide.engine.analysis import Problem
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.program import OrderedProgram, checked_cost
from lowtide.engine.recompute.prove_cost import ProvableCost
from lowtide.engine.recompute.result import RecomputeResult
from lowtide.engine.search.certificate import check_cost
from lowtide.engine.search.proof_of_cost import ClosedCase, CostProof
from tests.examples import share_of
from tests.oracles.broken_solvers import ALL_FAULTS, Faults, break_solver
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import random_graph

pytest.importorskip("highspy")

INFINITE = float("inf")
EFFORT = replace(RECOMPUTE_EFFORTS["balanced"], state_work=0, certify_share=2.0)
"""Without the exact search, which needs no solver on small graphs."""


@cache
def cases(in_place: bool) -> list[tuple[BudgetSearch, int, float]]:
    """Return searches with a budget and the least extra cost of all plans."""
    graphs = [skipping_graph(seed) for seed in range(40)] + [random_graph(seed, 3 + seed % 3) for seed in range(20)]
    return [case for graph in share_of(graphs, 4) for case in _cases_of(problem_of(graph, in_place=in_place))]


def _cases_of(problem: Problem) -> Iterator[tuple[BudgetSearch, int, float]]:
    order = problem.given_order()
    search = BudgetSearch(OrderedProgram(problem, order, checked_cost(problem, None)))
    for budget in range(int(problem.evaluate(order).peaks[0]) - 1, search.floor.peak_bytes - 1, -1):
        yield search, budget, least_extra_cost(problem, budget)


def is_true(result: RecomputeResult, least: float) -> bool:
    """Return whether bound, status and shortfall are true of the least extra cost of all plans."""
    claims_none_fits = result.status == "infeasible" or (
        result.shortfall is not None and result.shortfall.cause == "base order"
    )
    return (
        result.extra_cost_bound <= least
        and (not claims_none_fits or least == INFINITE)
        and (result.status != "optimal" or result.extra_cost == least)
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("faults", [(None, None), *ALL_FAULTS])
def test_no_claim_of_a_result_is_false(monkeypatch: pytest.MonkeyPatch, faults: Faults, in_place: bool) -> None:
    """The word of the solver is apart from what is proven, and an honest one is often proven."""
    break_solver(monkeypatch, faults)
    proven = words = 0
    for search, budget, least in cases(in_place):
        result = search.plan(budget, EFFORT, exact=True)
        assert is_true(result, least)
        proven += result.extra_cost_bound == least
        words += result.solver_bound is not None
    assert proven >= 0.5 * len(cases(in_place)) or any(faults)
    assert words > 0 or faults[0] is None


def proofs(in_place: bool) -> Iterator[tuple[Problem, CostProof, float]]:
    for search, budget, least in cases(in_place):
        problem = search.program.problem
        bound = search.plan(budget, EFFORT, exact=True).provable_cost
        proof = None if bound is None else bound.prove(problem.graph)
        if proof is not None:
            yield problem, proof, least


@pytest.mark.parametrize("in_place", [False, True])
def test_every_proven_cost_is_shown_by_its_proof(in_place: bool) -> None:
    shown = 0
    for problem, proof, least in proofs(in_place):
        read = msgspec.json.decode(msgspec.json.encode(proof), type=CostProof)
        assert check_cost(problem.graph, read, in_place=in_place) <= least
        shown += 1
    assert shown > 12


def test_the_checker_confirms_no_more_than_the_least_cost() -> None:
    """The strongest cases of each program are at most the least cost, and one unit more is refused."""
    refused = 0
    for in_place in (False, True):
        for search, budget, least in cases(in_place)[::3]:
            program = search.program
            if program.problem.graph.called:
                continue
            bound = ProvableCost(
                order=tuple(program.order.tolist()),
                costs=tuple(program.cost.tolist()),
                places=(int(search.baseline.live.argmax()),),
                budget_bytes=budget,
                in_place=in_place,
                at_least=0.0,
            )
            for at_least in sorted({*range(6), least}):
                proof = replace(bound, at_least=None if at_least == INFINITE else at_least).prove(program.problem.graph)
                if proof is None:
                    continue
                assert check_cost(program.problem.graph, proof, in_place=in_place) <= least
                above = msgspec.structs.replace(proof, at_least=(proof.at_least or 0.0) + 100.0)
                if least < INFINITE:
                    with pytest.raises(ProofError):
                        check_cost(program.problem.graph, above, in_place=in_place)
                    refused += 1
    assert refused > 20


def test_a_changed_proof_is_refused_or_still_true() -> None:
    """Multipliers, budget, cases and names are changed one at a time."""
    refused = total = 0
    for problem, proof, least in list(proofs(True))[::2]:
        closed = next(case for case in proof.cases if isinstance(case, ClosedCase))
        larger = tuple(1.5 * dual + 0.25 for dual in closed.duals)
        forgeries = [
            msgspec.structs.replace(proof, cases=proof.cases[1:]),
            msgspec.structs.replace(proof, cases=(*proof.cases, closed)),
            msgspec.structs.replace(proof, cases=(msgspec.structs.replace(closed, is_infeasible=True),), at_least=None),
            msgspec.structs.replace(proof, cases=(msgspec.structs.replace(closed, duals=larger), *proof.cases[1:])),
            msgspec.structs.replace(proof, rows=tuple(("used", -1, 0) for _ in proof.rows)),
            msgspec.structs.replace(proof, rows=proof.rows[::-1]),
            msgspec.structs.replace(proof, costs=proof.costs[:-1]),
            msgspec.structs.replace(proof, order=proof.order[::-1]),
            msgspec.structs.replace(proof, places=(*proof.places, 10**6)),
        ]
        for forged in forgeries:
            total += 1
            try:
                assert check_cost(problem.graph, forged, in_place=True) <= least
            except ProofError:
                refused += 1
    assert 0.5 * total < refused < total
