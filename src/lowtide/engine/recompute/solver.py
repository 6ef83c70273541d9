"""Mixed-integer programs, solved by HiGHS if the extra "exact" is installed.

No number of the solver is published as a bound: HiGHS returned wrong ones (issues 2957 and 3073, in 1.14.0). Its bound
steers the search; `certified_bound` derives a safe one from its duals.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.recompute.quiet_solver import new_solver
from lowtide.engine.search.proof_of_cost import Name

if TYPE_CHECKING:
    import highspy

_TOLERANCE = 1e-6
_ROW_SLACK = 1e-7
_WORK_PER_VALUE = 5
_VALUES_PER_WORK = 100


@dataclass(frozen=True, slots=True, eq=False)
class MixedIntegerProgram:
    """Minimize cost * x over integer x with lower <= x <= upper and row_lower <= rows <= row_upper.

    Numbers are exact. The solver gets rows divided by their units and costs by their mean.
    """

    cost: NDArray[np.float64]
    row_starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    row_units: NDArray[np.float64]
    row_slack: NDArray[np.float64]
    """Room added for the solver in units, so that rounding excludes no solution."""
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    continuous: NDArray[np.int32]
    row_names: Sequence[Name] = ()


@dataclass(slots=True, eq=False)
class ModelRows:
    """Rows of a program while it is built."""

    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list[int])
    values: list[float] = field(default_factory=list[float])
    lower: list[float] = field(default_factory=list[float])
    upper: list[float] = field(default_factory=list[float])
    units: list[float | None] = field(default_factory=list[float | None])
    names: list[Name] = field(default_factory=list[Name])

    def add(
        self, name: Name, terms: Iterable[tuple[int, float]], lower: float, upper: float, unit: float | None = None
    ) -> None:
        """Add a row of (column, value) terms. With a unit, the solver gets it in units, with slack."""
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)
        self.units.append(unit)
        self.names.append(name)

    def program(self, cost: Sequence[float], continuous: Sequence[int]) -> MixedIntegerProgram:
        """Return the program, with columns from 0 to 1."""
        return MixedIntegerProgram(
            np.asarray(cost, np.float64),
            np.asarray(self.starts, np.int32),
            np.asarray(self.columns, np.int32),
            np.asarray(self.values, np.float64),
            np.asarray(self.lower, np.float64),
            np.asarray(self.upper, np.float64),
            np.asarray([1.0 if unit is None else unit for unit in self.units]),
            np.asarray([0.0 if unit is None else _ROW_SLACK for unit in self.units]),
            np.zeros(len(cost)),
            np.ones(len(cost)),
            np.asarray(continuous, np.int32),
            self.names,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """The result of a solver run."""

    claimed_bound: float
    """Unproven; infinite if it finds no solution."""
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

    Stops within `relative_gap` of the claimed bound, or after `max_work`, counted at interrupt points and so equal on
    every machine.
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
        if steps[0] * per_step > max_work and event.data_in is not None:
            event.data_in.user_interrupt = True  # highspy 1.10 has no method for it

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
    """Return the linear relaxation's bound (0 if it takes too long, infinite if infeasible), and the work done."""
    relaxed = LinearRelaxation(milp).solve(max_work=max_work)
    return relaxed.claimed_bound, relaxed.work


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """The result for one linear program, not trusted."""

    claimed_bound: float
    """The optimal cost, 0 if not found, infinite if infeasible."""
    solution: NDArray[np.float64] | None
    duals: NDArray[np.float64]
    """Multipliers of the exact program's rows; if infeasible, of a combination that no solution satisfies."""
    work: int


class LinearRelaxation:
    """Solves a program's linear relaxation repeatedly, from the last basis."""

    def __init__(self, milp: MixedIntegerProgram) -> None:
        self._milp = milp
        self._highs, self._unit = _loaded(milp)
        self._per_step = 1 + len(milp.values) // _VALUES_PER_WORK
        self._load_work = _WORK_PER_VALUE * len(milp.values)

    def solve(self, *, max_work: int) -> Relaxed:
        """Solve within about `max_work`, see `Solved.work`."""
        import highspy

        work, self._load_work = self._load_work, 0
        self._highs.setOptionValue("simplex_iteration_limit", max(0, max_work - work) // self._per_step)
        self._highs.run()
        status, info = self._highs.getModelStatus(), self._highs.getInfo()
        work += info.simplex_iteration_count * self._per_step
        solution = self._highs.getSolution()
        is_infeasible = status == highspy.HighsModelStatus.kInfeasible
        is_optimal = status == highspy.HighsModelStatus.kOptimal
        ray: object = self._highs.getDualRay()[2] if is_infeasible else None  # pyright: ignore
        duals = np.asarray(ray if is_infeasible else solution.row_dual, np.float64)
        if duals.shape != self._milp.row_units.shape or not np.isfinite(duals).all():
            duals = np.zeros(len(self._milp.row_units))
        bound = info.objective_function_value if is_optimal else 0.0
        return Relaxed(
            float("inf") if is_infeasible else max(0.0, bound * (1 - _TOLERANCE)) * self._unit,
            np.asarray(solution.col_value) if is_optimal else None,
            duals * self._unit / self._milp.row_units,
            work,
        )

    def restrict(self, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> None:
        self._highs.setOptionValue("presolve", "off")  # it forgets the basis, and finds no ray
        self._highs.changeColsBounds(len(lower), np.arange(len(lower), dtype=np.int32), lower, upper)


def _loaded(milp: MixedIntegerProgram) -> tuple["highspy.Highs", float]:
    """Return a solver with the relaxed program, and its unit of costs."""
    import highspy

    n, units = len(milp.cost), milp.row_units
    unit = float(milp.cost.sum()) / max(n, 1) or 1.0
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n, len(milp.row_lower)
    lp.col_cost_ = milp.cost / unit
    lp.col_lower_, lp.col_upper_ = milp.lower, milp.upper
    lp.row_lower_ = milp.row_lower / units
    lp.row_upper_ = milp.row_upper / units + milp.row_slack
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = milp.row_starts, milp.columns
    lp.a_matrix_.value_ = milp.values / np.repeat(units, np.diff(milp.row_starts))
    highs = new_solver()
    highs.passModel(lp)
    return highs, unit
