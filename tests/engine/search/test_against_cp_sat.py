"""Compare the search with optimal peaks proven by CP-SAT (tests/oracles/record_cp_sat.py)."""

import json
from pathlib import Path

import pytest

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.search import solve
from tests.oracles.plans import problem_of
from tests.oracles.random_graphs import random_graph

DATA = Path(__file__).parent.parent.parent / "data"
RECORDS: list[tuple[int, bool, int]] = json.loads((DATA / "cp_sat_peaks.json").read_text())


@pytest.mark.parametrize("in_place", [False, True])
def test_the_search_finds_and_proves_every_least_peak_that_cp_sat_proved(in_place: bool) -> None:
    recorded = {seed: peak for seed, allowed, peak in RECORDS if allowed == in_place}
    assert recorded
    for seed, peak in recorded.items():
        problem = problem_of(random_graph(seed), in_place=in_place)
        solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"])
        bounds = tuple(bound.peak_bytes for bound in solution.bounds)
        assert problem.evaluate(solution.order).peaks.tolist() == [peak], seed
        assert solution.peaks == bounds == (peak,), seed
