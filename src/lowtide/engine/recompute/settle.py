"""Plans as sequences of runs that are settled: traded at one run after the other until all fit, from several starts."""

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.recompute.program import Execution, Ints, Program


class Pick(IntEnum):
    """At which run over the budget to trade next; shared with the native kernel."""

    WORST = 0
    FIRST = 1
    LAST = 2


_RESERVES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)
"""Parts of the budget left free at a trade, for what runs again after it needs memory too."""
_MOST_RESTARTS = 6
_DEAREST = 8.0
"""What runs again may cost at first, as a multiple of running every op once."""
_WORTH_TRIMMING = 1.3
"""What untrimmed runs may cost, as a multiple of the best plan; dearer ones are given up."""


def settle_and_trim(
    program: Program,
    runs: Ints,
    budget_bytes: int,
    *,
    weights: NDArray[np.float64],
    pick: Pick,
    reserve: float,
    max_cost: float,
    max_work: int,
) -> tuple[bool, Execution]:
    """Trade at one run over the budget after the other, until all fit; then leave out reruns that can be spared.

    A trade is that of `choose_drops.trade_at`, at any run instead of a first run only, and exact for that run: what
    idles there is kept or runs again after it, chains of reruns priced in. `weights` are the prices per op, `reserve` a
    part of the budget to leave free, `max_cost` the extra cost at which to give up. Returns whether the runs fit,
    and how they play. Native; work counts accesses played and arcs of minimum cuts.
    """
    native = program.native
    started = native.work
    fits, runs = native.settle(runs, weights, budget_bytes, int(reserve * budget_bytes), pick, max_cost, max_work)
    if fits:
        runs = native.trim_runs(runs, budget_bytes, max(0, max_work - (native.work - started)))
    return fits, program.replay(runs)


def settle_from(
    program: Program, starts: Sequence[Ints], budget_bytes: int, *, max_cost: float | None, max_work: int
) -> Execution | None:
    """Return the cheapest plan that settling leads to from given runs and from the base order; None where none fits.

    If settling ends over the budget, what runs again for the first runs that are over should rather have been kept: its
    price is doubled and all is settled again. Stops after `max_work`, or four times that while nothing fits.
    """
    native = program.native
    started = native.work
    best: Execution | None = None
    most = _DEAREST * float(program.cost.sum()) if max_cost is None else max_cost
    for runs, pick, reserve in _attempts(program, starts):
        weights = program.cost
        for _ in range(_MOST_RESTARTS):
            left = (max_work if best else 4 * max_work) - (native.work - started)
            if left <= 0:
                return best
            fits, execution = settle_and_trim(
                program,
                runs,
                budget_bytes,
                weights=weights,
                pick=pick,
                reserve=reserve,
                max_cost=most,
                max_work=left,
            )
            if fits:
                if best is None or execution.extra_cost < best.extra_cost:
                    best = execution
                    most = min(most, _WORTH_TRIMMING * execution.extra_cost)
                break
            again = _run_again_over_budget(program, execution, budget_bytes)
            if not len(again):
                break
            weights = weights.copy()
            weights[again] *= 2
    return best


def _attempts(program: Program, starts: Sequence[Ints]) -> Iterator[tuple[Ints, Pick, float]]:
    for runs in starts:
        for pick in (Pick.LAST, Pick.WORST):
            yield runs, pick, 0.0
    for reserve in _RESERVES:
        for pick in (Pick.LAST, Pick.WORST):
            yield program.order, pick, reserve


def _run_again_over_budget(program: Program, execution: Execution, budget_bytes: int) -> Ints:
    """Return the ops that run again in stages with a run over the budget, ascending."""
    over = np.unique(execution.stages[execution.live > budget_bytes])
    again = program.places[execution.runs] != execution.stages
    return np.unique(execution.runs[again & np.isin(execution.stages, over)])
