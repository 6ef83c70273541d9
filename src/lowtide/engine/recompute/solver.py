"""Mixed-integer programs, solved by HiGHS if the extra "exact" is installed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import highspy

_TOLERANCE = 1e-6
"""Relative error of the solver's bound."""
_WORK_PER_VALUE = 5
_VALUES_PER_WORK = 100


@dataclass(frozen=True, slots=True, eq=False)
class MixedIntegerProgram:
    """Minimize cost * x over binary x with row_lower <= rows <= row_upper."""

    cost: NDArray[np.float64]
    row_starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    continuous: NDArray[np.int32]
    """Columns that may take any value from 0 to 1."""


@dataclass(slots=True, eq=False)
class ModelRows:
    """Rows of a program while it is built."""

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
    """The result of a solver run."""

    lower_bound: float
    """Lower bound on the cost of every solution."""
    solution: NDArray[np.float64] | None
    work: int
    """Steps weighted by the program's size, about 500,000 to 1,500,000 per second."""


def is_available() -> bool:
    """Return whether the extra "exact" is installed."""
    return find_spec("highspy") is not None


def solve(
    milp: MixedIntegerProgram, start: NDArray[np.float64] | None, *, relative_gap: float, max_work: int
) -> Solved:
    """Minimize with HiGHS on one thread, from a start solution if given.

    Stops within `relative_gap` of the bound, or after `max_work`, counted at the solver's interrupt points and so equal
    on every machine. The lower bound is infinite if the program is infeasible.
    """
    import highspy

    n, highs, unit = len(milp.cost), *_loaded(milp)
    integrality = np.ones(n, np.uint8)
    integrality[milp.continuous] = 0
    highs.changeColsIntegrality(n, np.arange(n, dtype=np.int32), integrality)
    highs.setOptionValue("mip_rel_gap", relative_gap)
    highs.setOptionValue("mip_abs_gap", 0.0)
    if start is not None:
        known = highspy.HighsSolution()
        known.col_value = start.tolist()
        highs.setSolution(known)
    steps = [0]
    per_step = 4000 + n * n // 1000  # about a few linear programs over all columns

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


def relax(milp: MixedIntegerProgram, *, max_work: int) -> tuple[float, int]:
    """Return a lower bound from the linear relaxation (0 if it takes too long, infinite if infeasible), and the work
    done."""
    import highspy

    highs, unit = _loaded(milp)
    per_step = 1 + len(milp.values) // _VALUES_PER_WORK
    work = _WORK_PER_VALUE * len(milp.values)
    highs.setOptionValue("simplex_iteration_limit", max(0, max_work - work) // per_step)
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    work += info.simplex_iteration_count * per_step
    if status == highspy.HighsModelStatus.kInfeasible:
        return float("inf"), work
    bound = info.objective_function_value if status == highspy.HighsModelStatus.kOptimal else 0.0
    return max(0.0, bound * (1 - _TOLERANCE)) * unit, work


def _loaded(milp: MixedIntegerProgram) -> tuple["highspy.Highs", float]:
    """Return a quiet solver with the program, all columns continuous, and the unit of its costs."""
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
    highs = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, "random_seed": 0}.items():
        highs.setOptionValue(option, value)
    highs.passModel(lp)
    return highs, unit
