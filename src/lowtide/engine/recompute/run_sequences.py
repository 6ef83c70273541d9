"""Plans as sequences of runs."""

import math
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from lowtide.engine.recompute.program import Execution, Ints, OrderedProgram

T = TypeVar("T")
_RESERVES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)
_MAX_RESTARTS = 6
_MAX_COST_RATIO = 8.0
_TRIM_COST_RATIO = 1.3
_STAGE_WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_PLACE_WIDTHS = (0.002, 0.005, 0.01, 0.02, 0.05)
_WINDOW_RESERVES = (0.0, 0.0, 0.03, 0.1)
_PRICE_FACTORS = (0.5, 1.0, 1.0, 1.0, 2.0)
_VARY_PROBABILITY = 0.7
_WINDOW_COST_RATIO = 1.25
_WORK_PER_TRY = 100_000_000
_MAX_FAILURES = 150
_MOST_OPS_COUNTED = 50
_MAX_FAILED_WORK = 50_000_000
_RULES = tuple(product((1.0, 0.5), (1.0, 0.0, 2.0), (False, True)))
"""Exponents of size and distance; whether the most expensive operand comes first."""
_MAX_HALVINGS = 7


class Pick(IntEnum):
    """The run over the budget to trade at next, as in the native kernel."""

    WORST = 0
    FIRST = 1
    LAST = 2


def settle_and_trim(
    program: OrderedProgram,
    runs: Ints,
    budget_bytes: int,
    *,
    pick: Pick,
    max_work: int,
    weights: NDArray[np.float64] | None = None,
    reserve: float = 0.0,
    max_cost: float = math.inf,
) -> tuple[bool, Execution]:
    """Trade at runs over the budget until all fit, then remove unneeded recomputed runs.

    At a run, idle buffers are kept or recomputed later, at the lowest cost by `weights` (default: the program's).
    `reserve` is the share of the budget to leave free, `max_cost` the extra cost to give up at. Returns whether the
    runs fit, and their execution. Native. `max_work` limits accesses and arcs of minimum cuts.
    """
    native = program.native
    started = native.work
    weights = program.cost if weights is None else weights
    fits, runs = native.settle(runs, weights, budget_bytes, int(reserve * budget_bytes), pick, max_cost, max_work)
    if fits:
        runs = native.trim_runs(runs, budget_bytes, max(0, max_work - (native.work - started)))
    return fits, program.replay(runs)


def settle_from(
    program: OrderedProgram, starts: Sequence[Ints], budget_bytes: int, *, max_cost: float | None, max_work: int
) -> Execution | None:
    """Return the cheapest plan from settling `starts` and the base order, or None if none fits.

    Stops after `max_work`, or four times that while none fits.
    """
    native = program.native
    started = native.work
    best: Execution | None = None
    most = _MAX_COST_RATIO * float(program.cost.sum()) if max_cost is None else max_cost
    for runs, pick, reserve in _attempts(program, starts):
        weights = program.cost
        for _ in range(_MAX_RESTARTS):
            left = (max_work if best else 4 * max_work) - (native.work - started)
            if left <= 0:
                return best
            fits, execution = settle_and_trim(
                program, runs, budget_bytes, weights=weights, pick=pick, reserve=reserve, max_cost=most, max_work=left
            )
            if fits:
                if best is None or execution.extra_cost < best.extra_cost:
                    best = execution
                    most = min(most, _TRIM_COST_RATIO * execution.extra_cost)
                break
            again = _recomputed_over_budget(program, execution, budget_bytes)
            if not len(again):
                break
            weights = weights.copy()
            weights[again] *= 2
    return best


def _attempts(program: OrderedProgram, starts: Sequence[Ints]) -> Iterator[tuple[Ints, Pick, float]]:
    for runs in starts:
        for pick in (Pick.LAST, Pick.WORST):
            yield runs, pick, 0.0
    for reserve in _RESERVES:
        for pick in (Pick.LAST, Pick.WORST):
            yield program.order, pick, reserve


def _recomputed_over_budget(program: OrderedProgram, execution: Execution, budget_bytes: int) -> Ints:
    over = np.unique(execution.stages[execution.live > budget_bytes])
    again = program.places[execution.runs] != execution.stages
    return np.unique(execution.runs[again & np.isin(execution.stages, over)])


def improve(program: OrderedProgram, execution: Execution, budget_bytes: int, max_work: int) -> Execution:
    """Return a plan that costs no more than a given one that fits, by large neighborhood search.

    Source: Shaw (1998). Deterministic: random draws are seeded, and `max_work` limits accesses and arcs of minimum
    cuts.
    """
    random = RandomState([0])  # draws the same numbers in every version of NumPy
    native = program.native
    started = native.work
    failures, most_failures = 0, _MAX_FAILURES + min(_MOST_OPS_COUNTED, len(program.order))
    last_gain = started
    while failures < most_failures and (left := max_work - (native.work - started)) > 0:
        if native.work - last_gain > max(_MAX_FAILED_WORK, max_work // 4):
            break
        kept = _runs_outside_window(program, execution, random)
        if kept is None:
            break
        fits, found = settle_and_trim(
            program,
            execution.runs[kept],
            budget_bytes,
            weights=_prices(program, random),
            pick=_draw(tuple(Pick), random),
            reserve=_draw(_WINDOW_RESERVES, random),
            max_cost=_WINDOW_COST_RATIO * execution.extra_cost,
            max_work=min(left, _WORK_PER_TRY),
        )
        failures += 1
        if fits and found.extra_cost <= execution.extra_cost:
            if found.extra_cost < execution.extra_cost:
                failures, last_gain = 0, native.work
            execution = found
    return execution


def _runs_outside_window(
    program: OrderedProgram, execution: Execution, random: RandomState
) -> NDArray[np.bool_] | None:
    places = program.places[execution.runs]
    is_again = places != execution.stages
    again = np.flatnonzero(is_again)
    if not len(again):
        return None
    along, widths = _draw(((execution.stages, _STAGE_WIDTHS), (places, _PLACE_WIDTHS)), random)
    center = int(along[_draw(again.tolist(), random)])
    width = int(len(program.order) * _draw(widths, random)) + 1
    return ~(is_again & (np.abs(along - center) <= width))


def _prices(program: OrderedProgram, random: RandomState) -> NDArray[np.float64]:
    if random.random_sample() >= _VARY_PROBABILITY:
        return program.cost
    draws = (random.random_sample(len(program.cost)) * len(_PRICE_FACTORS)).astype(np.intp)
    return program.cost * np.asarray(_PRICE_FACTORS)[draws]


def _draw(values: Sequence[T], random: RandomState) -> T:
    return values[int(random.random_sample() * len(values))]


def on_demand(program: OrderedProgram, budget_bytes: int, max_work: int) -> Execution | None:
    """Return the cheapest plan by eviction and recomputation on demand, or None if none fits.

    Evicts the buffer with the lowest recompute cost, weighted by size and distance to its next use. Source: Kirisame et
    al. (2021). Native. `max_work` limits accesses and candidates.
    """
    return min(_plans(program, budget_bytes, max_work), key=lambda plan: plan.extra_cost, default=None)


def lowest_on_demand(program: OrderedProgram, floor_bytes: int, most_bytes: int, max_work: int) -> Execution | None:
    """Return the lowest plan found by bisection between two peaks, or None."""
    best: Execution | None = None
    low, high = floor_bytes, most_bytes
    for _ in range(_MAX_HALVINGS):
        if low >= high:
            break
        budget = (low + high) // 2
        if (found := on_demand(program, budget, max_work // _MAX_HALVINGS)) is not None:
            best, high = found, found.peak_bytes
        else:
            low = budget + 1
    return best


def _plans(program: OrderedProgram, budget: int, max_work: int) -> Iterator[Execution]:
    native = program.native
    started = native.work
    for size_power, distance_power, hardest_first in _RULES:
        left = max_work - (native.work - started)
        if left <= 0:
            return
        runs = native.on_demand(budget, size_power, distance_power, hardest_first, left // 4)
        if len(runs):
            left = max(0, max_work - (native.work - started))
            yield program.replay(native.trim_runs(runs, budget, left // 4))
