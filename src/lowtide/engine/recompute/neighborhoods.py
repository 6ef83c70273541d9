"""Large neighborhood search: part of what runs again is left out, and what then does not fit is settled anew."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.recompute.program import Execution, Program
from lowtide.engine.recompute.settle import Pick, settle_and_trim

T = TypeVar("T")

_STAGES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Half the width of a window of stages, as a part of all ops."""
_PLACES = (0.002, 0.005, 0.01, 0.02, 0.05)
"""Half the width of a window of ops that run again."""
_RESERVES = (0.0, 0.0, 0.03, 0.1)
_FACTORS = (0.5, 1.0, 1.0, 1.0, 2.0)
"""What prices are multiplied by, so that trades differ."""
_VARIED = 0.7
"""How often prices vary."""
_WORTH_TRIMMING = 1.25
_WORK_PER_TRY = 100_000_000
_MOST_IN_VAIN = 150
"""Tries in a row without anything cheaper that end the search, on top of as many as there are ops."""


def improve(program: Program, execution: Execution, budget_bytes: int, max_work: int) -> Execution:
    """Return a plan that fits and costs no more than the given one, which fits.

    Each try leaves out the reruns of a window, either of the stages they run for or of the ops that they run. It
    settles what is over the budget then, with prices that vary, and trims. What costs no more is taken. The search
    ends when many tries in a row find nothing cheaper. After Shaw (1998). Deterministic: the draws are seeded, and
    `max_work` counts accesses played and arcs of minimum cuts.
    """
    random = Random(0)
    native = program.native
    started = native.work
    in_vain, most_in_vain = 0, _MOST_IN_VAIN + len(program.order)
    while in_vain < most_in_vain and (left := max_work - (native.work - started)) > 0:
        kept = _without_a_window(program, execution, random)
        if kept is None:
            break
        fits, found = settle_and_trim(
            program,
            execution.runs[kept],
            budget_bytes,
            weights=_prices(program, random),
            pick=_one_of(tuple(Pick), random),
            reserve=_one_of(_RESERVES, random),
            max_cost=_WORTH_TRIMMING * execution.extra_cost,
            max_work=min(left, _WORK_PER_TRY),
        )
        in_vain += 1
        if fits and found.extra_cost <= execution.extra_cost:
            if found.extra_cost < execution.extra_cost:
                in_vain = 0
            execution = found
    return execution


def _without_a_window(program: Program, execution: Execution, random: Random) -> NDArray[np.bool_] | None:
    """Say which runs remain; None where nothing runs again."""
    places = program.places[execution.runs]
    is_again = places != execution.stages
    again = np.flatnonzero(is_again)
    if not len(again):
        return None
    along, widths = _one_of(((execution.stages, _STAGES), (places, _PLACES)), random)
    center = int(along[_one_of(again.tolist(), random)])
    width = int(len(program.order) * _one_of(widths, random)) + 1
    return ~(is_again & (np.abs(along - center) <= width))


def _prices(program: Program, random: Random) -> NDArray[np.float64]:
    if random.random() >= _VARIED:
        return program.cost
    return program.cost * np.asarray([_one_of(_FACTORS, random) for _ in range(len(program.cost))])


def _one_of(values: Sequence[T], random: Random) -> T:
    return values[int(random.random() * len(values))]
