"""Derive lower bounds from duals of linear programs, in safe arithmetic.

Source: Neumaier and Shcherbina, "Safe bounds in linear and mixed-integer linear programming" (2004). Any multipliers
bound the cost over bounded columns, so the solver need not be trusted.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.recompute.solver import LinearRelaxation, MixedIntegerProgram

_ROUNDOFF = 2.0**-53
_SAFETY = 1.01
"""Factor for the rounding of error estimates."""
_TINY = 1e-300
"""Added to errors of sums, for underflow."""
_INTEGRAL = 1e-6
_LEAST_DUAL = 1e-12
"""Smaller multipliers, relative to the largest, are rounding errors."""
_WORK_PER_NODE = 500
_ROOT_WORK = 150_000
_MAX_NUMBERS = 20_000_000
_VALUES_PER_WORK = 50


@dataclass(frozen=True, slots=True)
class BranchedCase:
    """Two cases: a column is at most `at`; then at least `at` + 1."""

    column: int
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class BoundedCase:
    """Multipliers that bound a case's cost or show that it is infeasible."""

    duals: NDArray[np.float64]
    is_infeasible: bool


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedBound:
    """A proven lower bound on every solution's cost."""

    at_least: float
    """Infinite without a solution."""
    tree: tuple[BranchedCase | BoundedCase, ...]
    """In depth-first order, each split before its two cases."""
    work: int


@dataclass(slots=True, eq=False)
class _Node:
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    closed: BoundedCase
    bound: float
    split: tuple[BranchedCase, "_Node", "_Node"] | None = None


def certify(milp: MixedIntegerProgram, goal: float, *, max_work: int) -> CertifiedBound:
    """Return a certified lower bound of a program with finite column bounds.

    Best-first branch and bound. Ends at `goal`, at an integer optimum below it, with very many cases, or after about
    `max_work` (see `Solved.work`) beyond the first linear program.
    """
    safe, relaxation = _SafeArithmetic(milp), LinearRelaxation(milp)
    per_node = _WORK_PER_NODE + len(milp.values) // _VALUES_PER_WORK
    is_integer = np.ones(len(milp.cost), np.bool_)
    is_integer[milp.continuous] = False
    none = BoundedCase(np.zeros(len(milp.row_units)), is_infeasible=False)
    root = _Node(milp.lower, milp.upper, none, safe.bound(none.duals, milp.lower, milp.upper))
    open_nodes, work, count = [(root.bound, 0, root)], 0, 0
    limit, most_nodes = max(_ROOT_WORK, max_work), _MAX_NUMBERS // (2 * len(milp.cost) + len(milp.row_units) + 1)
    while open_nodes and open_nodes[0][0] < goal and work < limit and count <= most_nodes:
        node = heapq.heappop(open_nodes)[2]
        relaxation.restrict(node.lower, node.upper)
        relaxed = relaxation.solve(max_work=limit - work)
        work += relaxed.work + per_node
        limit = work + max_work if node is root else limit
        safe.close(node, relaxed.duals, claims_infeasible=relaxed.claimed_bound == np.inf)
        column = None if relaxed.solution is None else _most_fractional(relaxed.solution, is_integer)
        if node.bound >= goal:
            continue
        if column is None or relaxed.solution is None:
            goal = min(goal, node.bound)  # an integer optimum, or nothing to derive
            continue
        split = BranchedCase(column, int(np.floor(relaxed.solution[column])))
        below, above = node.upper.copy(), node.lower.copy()
        below[column], above[column] = split.at, split.at + 1
        children = [_Node(node.lower, below, node.closed, 0.0), _Node(above, node.upper, node.closed, 0.0)]
        for child in children:
            child.bound = max(node.bound, safe.bound(node.closed.duals, child.lower, child.upper))
            heapq.heappush(open_nodes, (child.bound, count := count + 1, child))
        node.split = (split, children[0], children[1])
    return CertifiedBound(*_recorded(root), work)


def _most_fractional(solution: NDArray[np.float64], is_integer: NDArray[np.bool_]) -> int | None:
    away = np.where(is_integer, np.abs(solution - np.round(solution)), 0.0)
    column = int(away.argmax()) if len(away) else 0
    return column if len(away) and away[column] > _INTEGRAL else None


def _recorded(root: _Node) -> tuple[float, tuple[BranchedCase | BoundedCase, ...]]:
    tree: list[BranchedCase | BoundedCase] = []
    least, waiting = float("inf"), [root]
    while waiting:
        node = waiting.pop()
        if node.split is None:
            tree.append(node.closed)
            least = min(least, node.bound)
        else:
            tree.append(node.split[0])
            waiting += [node.split[2], node.split[1]]
    return least, tuple(tree)


class _SafeArithmetic:
    def __init__(self, milp: MixedIntegerProgram) -> None:
        self._milp = milp
        self._rows = np.repeat(np.arange(len(milp.row_units)), np.diff(milp.row_starts))
        self._counts = np.bincount(milp.columns, minlength=len(milp.cost))

    def close(self, node: _Node, duals: NDArray[np.float64], *, claims_infeasible: bool) -> None:
        duals = np.where(np.abs(duals) < _LEAST_DUAL * np.abs(duals).max(initial=0.0), 0.0, duals)
        if claims_infeasible:
            for ray in (duals, -duals):
                if self._least(np.zeros(len(self._milp.cost)), ray, node.lower, node.upper) > 0:
                    node.closed, node.bound = BoundedCase(ray, is_infeasible=True), np.inf
                    return
        bound = self.bound(duals, node.lower, node.upper)
        if bound > node.bound:
            node.closed, node.bound = BoundedCase(duals, is_infeasible=False), bound

    def bound(self, duals: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> float:
        return self._least(self._milp.cost, duals, lower, upper)

    def _least(
        self,
        cost: NDArray[np.float64],
        duals: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
    ) -> float:
        """Return a lower bound on duals * rows + (cost - duals * matrix) * x over the box."""
        milp, n = self._milp, len(cost)
        sides = np.where(duals > 0, milp.row_lower, np.where(duals < 0, milp.row_upper, 0.0))
        duals = np.where(np.isfinite(sides), duals, 0.0)
        from_rows = duals * np.where(np.isfinite(sides), sides, 0.0)
        products = milp.values * duals[self._rows]
        reduced = cost - np.bincount(milp.columns, products, minlength=n)
        sizes = np.abs(cost) + np.bincount(milp.columns, np.abs(products), minlength=n)
        errors = (self._counts + 3) * _ROUNDOFF * _SAFETY * sizes * np.maximum(np.abs(lower), np.abs(upper))
        from_columns = np.minimum(reduced * lower, reduced * upper) - errors
        parts = np.concatenate([from_rows, from_columns])
        error = (len(parts) + 5) * _ROUNDOFF * _SAFETY * float(np.abs(parts).sum()) + len(parts) * _TINY
        total = float(parts.sum()) - _SAFETY * error
        return total if np.isfinite(total) else -np.inf
