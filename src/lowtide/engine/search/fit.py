"""Exact search for an order within a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from lowtide import _native
from lowtide.engine.analysis.budget import UNLIMITED
from lowtide.engine.analysis.lower_bounds import bytes_at_the_edges
from lowtide.engine.analysis.problem import Order, Problem


class Fit(IntEnum):
    """Result of a search, numbered as in the native kernel."""

    FOUND = 0
    IMPOSSIBLE = 1
    STOPPED = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitOutcome:
    """Result of `find_fit`; budgets are in bytes per memory space."""

    fit: Fit
    budget: tuple[int, ...]
    order: Order | None = None
    next_budget: tuple[int, ...]
    """If impossible: no budget with one figure below these, the others as given, can be met."""
    work: int = 0

    @property
    def limited_space(self) -> int | None:
        limited = [space for space, most in enumerate(self.budget) if most < UNLIMITED]
        return limited[0] if len(limited) == 1 else None


def find_fit(problem: Problem, limits: Sequence[int], preference: Order, most_work: int) -> FitOutcome:
    """Search for an order within limits in bytes per memory space; `UNLIMITED` is no limit.

    Depth first over executed sets, with deduced dependencies. Ties follow `preference`. Ctrl-C raises
    KeyboardInterrupt. Exact unless stopped after about `most_work` units; deterministic.
    """
    edges = np.array([bytes_at_the_edges(problem.graph, space) for space in range(len(limits))], np.int64)
    asked = np.array(limits, np.int64)
    if (edges > asked).any():
        next_budget = tuple(np.maximum(edges, asked).tolist())
        return FitOutcome(fit=Fit.IMPOSSIBLE, budget=tuple(limits), next_budget=next_budget)
    fit, order, following, *_, work = _native.find_fit(problem.native, problem.in_place, asked, preference, most_work)
    found, next_budget = order if fit == Fit.FOUND else None, tuple(following.tolist())
    return FitOutcome(fit=Fit(fit), budget=tuple(limits), order=found, next_budget=next_budget, work=work)
