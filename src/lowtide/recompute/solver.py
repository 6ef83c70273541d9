"""Mixed-integer programs, and the one place that talks to HiGHS: an extra, found missing only when asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

_TOLERANCE = 1e-6
"""What the solver may be off by, relative to the bound."""
_WORK_PER_VALUE = 5
"""What building and presolving a program takes, per value of its rows, which the solver's steps do not show."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedIntegerProgram:
    """Minimize cost * x over binary x with row_lower <= rows <= row_upper; some x may be anything from 0 to 1."""

    cost: NDArray[np.float64]
    row_starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    continuous: NDArray[np.int32]
    """The columns that need not be 0 or 1."""


@dataclass(slots=True, eq=False)
class ModelRows:
    """Rows of a program as they are collected."""

    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list[int])
    values: list[float] = field(default_factory=list[float])
    lower: list[float] = field(default_factory=list[float])
    upper: list[float] = field(default_factory=list[float])

    def add(self, terms: Iterable[tuple[int, float]], lower: float, upper: float) -> None:
        """Add a row of (column, value) terms."""
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """What a solver found within its work."""

    lower_bound: float
    """No solution costs less."""
    solution: NDArray[np.float64] | None
    work: int
    """Steps done, weighed by the size of the program; some 500,000 to 1,500,000 a second."""


def is_available() -> bool:
    """Tell whether the extra "exact" is installed."""
    return find_spec("highspy") is not None


def solve(
    milp: MixedIntegerProgram, start: NDArray[np.float64] | None, *, relative_gap: float, max_work: int
) -> Solved:
    """Minimize with HiGHS on one thread, from a known solution if there is one.

    Stops when the best solution is within the relative gap of the bound, or after `max_work`: the solver asks at fixed
    points of its search whether to go on, and these are counted, not seconds, so that every machine stops at the same
    one. The lower bound is infinite where there is no solution at all.
    """
    import highspy

    n = len(milp.cost)
    unit = float(milp.cost.sum()) / max(n, 1) or 1.0
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n, len(milp.row_lower)
    lp.col_cost_ = milp.cost / unit
    lp.col_lower_, lp.col_upper_ = np.zeros(n), np.ones(n)
    lp.row_lower_, lp.row_upper_ = milp.row_lower, milp.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = milp.row_starts, milp.columns, milp.values
    integrality = [highspy.HighsVarType.kInteger] * n
    for column in milp.continuous.tolist():
        integrality[column] = highspy.HighsVarType.kContinuous
    lp.integrality_ = integrality

    highs = highspy.Highs()
    for option, value in {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": relative_gap,
        "mip_abs_gap": 0.0,
    }.items():
        highs.setOptionValue(option, value)
    highs.passModel(lp)
    if start is not None:
        known = highspy.HighsSolution()
        known.col_value = start.tolist()
        highs.setSolution(known)
    steps = [0]
    per_step = 4000 + n * n // 1000  # about what a step takes: a few linear programs over all columns

    def count(event: "highspy.highs.HighsCallbackEvent") -> None:
        steps[0] += 1
        if steps[0] * per_step > max_work:
            event.interrupt()

    highs.cbMipInterrupt += count
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    work = steps[0] * per_step + _WORK_PER_VALUE * len(milp.values)
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solved(float("inf"), None, work)
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    solution = np.asarray(highs.getSolution().col_value) if found else None
    bound = info.mip_dual_bound if np.isfinite(info.mip_dual_bound) else 0.0
    return Solved(max(0.0, bound * (1 - _TOLERANCE)) * unit, solution, work)
