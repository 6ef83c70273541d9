"""Certified bounds against the optimum of small integer programs, with right and with wrong duals."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest

from lowtide.engine.recompute.certified_bound import BranchedCase, CertifiedBound, certify
from lowtide.engine.recompute.solver import MixedIntegerProgram, ModelRows
from lowtide.engine.search import proof_of_cost
from lowtide.engine.search.check_cases import CaseError, ExactColumn, ExactRow, least_cost
from lowtide.engine.search.proof_of_cost import Name
from tests.oracles.broken_solvers import (
    RelaxedFault,
    break_solver,
    duals_too_high,
    duals_with_noise,
    relaxation_impossible,
)

pytest.importorskip("highspy")

INFINITE = float("inf")
Rows = Sequence[tuple[dict[int, float], float, float]]


def program(
    cost: Sequence[float], rows: Rows, lower: Sequence[float], upper: Sequence[float], continuous: Sequence[int] = ()
) -> MixedIntegerProgram:
    model = ModelRows()
    for number, (terms, least, most) in enumerate(rows):
        model.add(("row", number), terms.items(), least, most)
    return replace(model.program(cost, continuous), lower=np.asarray(lower, float), upper=np.asarray(upper, float))


class Exact:
    """The same program for the checker."""

    def __init__(self, milp: MixedIntegerProgram) -> None:
        self.milp = milp
        self.counted: list[Name] = [("column", number) for number in range(len(milp.cost))]

    def row(self, name: Name) -> ExactRow:
        milp, number = self.milp, int(name[1])
        span = range(milp.row_starts[number], milp.row_starts[number + 1])
        terms = {("column", int(milp.columns[k])): Fraction(float(milp.values[k])) for k in span}
        sides = [float(side[number]) for side in (milp.row_lower, milp.row_upper)]
        lower, upper = (Fraction(side) if np.isfinite(side) else None for side in sides)
        return ExactRow(terms, lower, upper)

    def column(self, name: Name) -> ExactColumn:
        milp, number = self.milp, int(name[1])
        cost, lower, upper = (Fraction(float(each[number])) for each in (milp.cost, milp.lower, milp.upper))
        return ExactColumn(cost, lower, upper, number not in milp.continuous)


def exact_bound(milp: MixedIntegerProgram, found: CertifiedBound) -> float:
    """Return the bound that the checker confirms."""
    cases: list[proof_of_cost.Case] = []
    for case in found.tree:
        if isinstance(case, BranchedCase):
            cases.append(proof_of_cost.SplitCase(case.column, case.at))
        else:
            rows = tuple(range(len(case.duals)))
            cases.append(proof_of_cost.ClosedCase(case.is_infeasible, rows, tuple(case.duals.tolist())))
    confirmed = least_cost(Exact(milp), milp.row_names, Exact(milp).counted, cases)
    return INFINITE if confirmed is None else float(confirmed)


HIGHS_2957 = program([1.0, 2.0], [({0: 1.0, 1: 1.0}, 20.1, INFINITE)], [0, 8], [20, 20], [1])
"""HiGHS 1.14.0 claims a bound of 29 (its issue 2957)."""
HIGHS_3073 = program(
    [100.0, 0.01, 0.0],
    [
        ({0: 1.0, 2: 1.0}, 3.0, 3.0),
        ({2: 1.0, 1: -1.0}, -INFINITE, 0.0),
        ({2: -1.0, 1: -1.0}, -INFINITE, 0.0),
        ({2: 1.0}, -INFINITE, 3.0),
        ({2: -1.0}, -INFINITE, -0.45),
    ],
    [0, -10, 0],
    [10, 10, 10],
    [0, 1],
)
"""HiGHS 1.14.0 claims a bound of 200.01 (its issue 3073)."""


@pytest.mark.parametrize(("milp", "optimum", "claimed"), [(HIGHS_2957, 28.2, 29.0), (HIGHS_3073, 0.03, 200.01)])
def test_programs_that_highs_gets_wrong_have_their_optimum_as_certified_bound(
    milp: MixedIntegerProgram, optimum: float, claimed: float
) -> None:
    """A wrong word is only a goal, which the bound does not reach."""
    found = certify(milp, claimed, max_work=1_000_000)
    assert found.at_least == pytest.approx(optimum, abs=1e-9)
    assert found.at_least <= exact_bound(milp, found) <= optimum + 1e-12


def random_program(seed: int) -> MixedIntegerProgram:
    random = Random(seed)
    n, m = random.randint(2, 5), random.randint(1, 4)
    cost = [float(random.randint(0, 9)) + random.choice([0.0, 0.1]) for _ in range(n)]
    rows: Rows = [
        (
            {column: float(random.randint(-5, 9)) for column in range(n)},
            float(random.randint(-4, 9)) if random.random() < 0.8 else -INFINITE,
            float(random.randint(9, 14)) if random.random() < 0.5 else INFINITE,
        )
        for _ in range(m)
    ]
    return program(cost, rows, [0.0] * n, [float(random.randint(1, 2)) for _ in range(n)])


def optimum_of(milp: MixedIntegerProgram) -> float:
    matrix = np.zeros((len(milp.row_units), len(milp.cost)))
    matrix[np.repeat(np.arange(len(matrix)), np.diff(milp.row_starts)), milp.columns] = milp.values
    boxes = (range(int(lower), int(upper) + 1) for lower, upper in zip(milp.lower, milp.upper, strict=True))
    points = np.asarray(list(product(*boxes)), float)
    rows = points @ matrix.T
    is_solution = ((rows >= milp.row_lower) & (rows <= milp.row_upper)).all(axis=1)
    return float((points @ milp.cost)[is_solution].min(initial=INFINITE))


@pytest.mark.parametrize("fault", [None, duals_with_noise, relaxation_impossible, duals_too_high])
def test_no_duals_give_a_bound_above_the_optimum(monkeypatch: pytest.MonkeyPatch, fault: RelaxedFault | None) -> None:
    """The bound in floating point is at most the exact one, which is at most the optimum of all points."""
    break_solver(monkeypatch, (None, fault))
    reached = 0
    for seed in range(100):
        milp = random_program(seed)
        optimum = optimum_of(milp)
        found = certify(milp, INFINITE, max_work=300_000)
        assert found.at_least <= exact_bound(milp, found) <= optimum + 1e-12
        reached += found.at_least == optimum or found.at_least > optimum - 1e-6
    assert reached == 100 if fault is None else reached < 100


def test_a_goal_ends_the_search_early_and_work_limits_it() -> None:
    split = 0
    for milp in map(random_program, range(60)):
        whole = certify(milp, INFINITE, max_work=300_000)
        goal = min(whole.at_least, 100.0) / 2
        ended, first = certify(milp, goal, max_work=300_000), certify(milp, INFINITE, max_work=0)
        assert min(goal, whole.at_least) <= ended.at_least <= whole.at_least
        assert len(ended.tree) <= len(whole.tree)
        assert len(first.tree) <= 3
        split += len(ended.tree) < len(whole.tree) > 3
    assert split > 3


def test_incomplete_or_empty_cases_are_refused() -> None:
    """A case that is left out, one too many, and multipliers that refute nothing."""
    found = certify(HIGHS_2957, INFINITE, max_work=1_000_000)
    assert len(found.tree) == 3
    for tree in (found.tree[:-1], (*found.tree, found.tree[-1]), found.tree[:1]):
        with pytest.raises(CaseError):
            exact_bound(HIGHS_2957, replace(found, tree=tree))
    with pytest.raises(CaseError, match="not shown"):
        least_cost(Exact(HIGHS_2957), HIGHS_2957.row_names, [], [proof_of_cost.ClosedCase(True, (0,), (1.0,))])
    with pytest.raises(CaseError, match="between integers"):
        least_cost(Exact(HIGHS_2957), [], [("column", 1)], [proof_of_cost.SplitCase(0, 9)])
