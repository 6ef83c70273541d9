"""Plans that make again what is missing when it is needed: found quickly, and down to budgets right above the floor."""

from collections.abc import Iterator
from itertools import product

from lowtide.engine.recompute.program import Execution, Program

_RULES = tuple(product((1.0, 0.5), (1.0, 0.0, 2.0), (False, True)))
"""Powers of size and of distance by which candidates are ranked, and whether the hardest operand is made first."""
_MOST_HALVINGS = 7


def on_demand(program: Program, budget_bytes: int, max_work: int) -> Execution | None:
    """Return the cheapest plan within a budget that evicting and making again leads to; None where no rule does.

    The base order runs op by op. Where an op does not fit, what costs least to make again goes, weighed by its size and
    by how long nothing needs it; what is missing runs again when it is needed, with what that takes. Where that ends
    in a contradiction, what was missing there becomes dearer, and all starts again. Every rule of ranking is tried.
    Reruns that can be spared are left out. After Kirisame et al. (2021). Native; `max_work` counts accesses played and
    candidates looked at.
    """
    return min(_plans(program, budget_bytes, max_work), key=lambda plan: plan.extra_cost, default=None)


def lowest_on_demand(program: Program, floor_bytes: int, most_bytes: int, max_work: int) -> Execution | None:
    """Return the plan of least peak between the floor and a known peak that halving the budget leads to."""
    best: Execution | None = None
    low, high = floor_bytes, most_bytes
    for _ in range(_MOST_HALVINGS):
        if low >= high:
            break
        budget = (low + high) // 2
        if (found := on_demand(program, budget, max_work // _MOST_HALVINGS)) is not None:
            best, high = found, found.peak_bytes
        else:
            low = budget + 1
    return best


def _plans(program: Program, budget: int, max_work: int) -> Iterator[Execution]:
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
