"""Solvers that are broken on purpose: real results of HiGHS, changed."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from lowtide.engine.recompute import solver
from lowtide.engine.recompute.solver import LinearRelaxation, Relaxed, Solved

Fault = Callable[[Solved, int], Solved]
"""Changes a result of the solver, given the number of results before."""
RelaxedFault = Callable[[Relaxed, int], Relaxed]
"""Changes a result for a linear program."""
Faults = tuple[Fault | None, RelaxedFault | None]


def word_too_high(solved: Solved, turn: int) -> Solved:
    """Raise the claimed bound by one percent and a little more."""
    del turn
    return replace(solved, claimed_bound=1.01 * solved.claimed_bound + 0.001)


def word_impossible(solved: Solved, turn: int) -> Solved:
    """Claim every other time that there is no solution."""
    return replace(solved, claimed_bound=float("inf"), solution=None) if turn % 2 else solved


def always_impossible(solved: Solved, turn: int) -> Solved:
    """Claim that there is no solution."""
    del turn
    return replace(solved, claimed_bound=float("inf"), solution=None)


def duals_with_noise(relaxed: Relaxed, turn: int) -> Relaxed:
    """Add noise to all multipliers."""
    noise = np.random.default_rng(turn).normal(0, 1, len(relaxed.duals))
    return replace(relaxed, duals=relaxed.duals * (1 + 0.1 * noise) + 0.01 * noise)


def duals_too_high(relaxed: Relaxed, turn: int) -> Relaxed:
    """Raise the claimed optimum and all multipliers by one percent."""
    del turn
    return replace(relaxed, claimed_bound=1.01 * relaxed.claimed_bound, duals=1.01 * relaxed.duals)


def relaxation_impossible(relaxed: Relaxed, turn: int) -> Relaxed:
    """Claim that there is no solution, with multipliers that do not show it."""
    del turn
    return replace(relaxed, claimed_bound=float("inf"), solution=None)


ALL_FAULTS: tuple[Faults, ...] = (
    (word_too_high, None),
    (word_impossible, None),
    (always_impossible, None),
    (None, duals_with_noise),
    (word_impossible, relaxation_impossible),
    (word_too_high, duals_with_noise),
)


def break_solver(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Let faults change all results of the solver."""
    fault, relaxed_fault = faults
    solve, relax, turns = solver.solve, LinearRelaxation.solve, count()

    def solved(*given: Any, **limits: Any) -> Solved:
        found = solve(*given, **limits)
        return found if fault is None else fault(found, next(turns))

    def relaxed(*given: Any, **limits: Any) -> Relaxed:
        found = relax(*given, **limits)
        return found if relaxed_fault is None else relaxed_fault(found, next(turns))

    monkeypatch.setattr(solver, "solve", solved)
    monkeypatch.setattr(LinearRelaxation, "solve", relaxed)
