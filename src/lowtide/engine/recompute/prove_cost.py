"""Record the proof of a bound on the extra cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.recompute import solver
from lowtide.engine.recompute.certified_bound import BranchedCase, CertifiedBound, certify
from lowtide.engine.recompute.place_model import BuiltModel, PlaceModel
from lowtide.engine.recompute.program import OrderedProgram, before_rounding
from lowtide.engine.search import proof_of_cost
from lowtide.engine.search.proof_of_cost import CostProof, Name

_MAX_WORK = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvableCost:
    """A bound on the extra cost in the first memory space, shown by linear programs over some places."""

    order: tuple[OpId, ...]
    costs: tuple[float, ...]
    places: tuple[Place, ...]
    budget_bytes: int
    in_place: bool
    at_least: float | None
    """None if no plan fits."""
    seconds: tuple[float, ...] = ()
    """Run times if plans may copy buffers to the host."""

    def prove(self, graph: Graph, build: "Build | None" = None) -> CostProof | None:
        """Return the proof, found again by the solver, over the program that `build` makes.

        None without a solver, after too much work, or if ops call other graphs.
        """
        if not solver.is_available() or graph.called:
            return None
        cost = np.asarray(self.costs)
        problem = Problem(graph, in_place=self.in_place)
        program = OrderedProgram(problem, np.asarray(self.order, np.int32), cost)
        built, names = (build or _build)(self, program)
        goal = float("inf") if self.at_least is None else self.at_least
        if not self.seconds and goal < float("inf"):
            goal = before_rounding(goal, cost)
        found = certify(built.milp, goal, max_work=_MAX_WORK)
        return self._recorded(graph, built, names, found) if found.at_least >= goal else None

    def _recorded(self, graph: Graph, built: BuiltModel, names: Mapping[int, Name], found: CertifiedBound) -> CostProof:
        rows: dict[int, int] = {}
        columns: dict[int, int] = {}
        cases: list[proof_of_cost.Case] = []
        for case in found.tree:
            if isinstance(case, BranchedCase):
                cases.append(proof_of_cost.SplitCase(columns.setdefault(case.column, len(columns)), case.at))
                continue
            used: list[int] = np.flatnonzero(case.duals).tolist()
            indices = tuple(rows.setdefault(row, len(rows)) for row in used)
            cases.append(proof_of_cost.ClosedCase(case.is_infeasible, indices, tuple(case.duals[used].tolist())))
        return CostProof(
            space=graph.spaces[0].name,
            budget_bytes=self.budget_bytes,
            order=self.order,
            costs=self.costs,
            seconds=self.seconds,
            places=self.places,
            at_least=self.at_least,
            rows=tuple(built.milp.row_names[row] for row in rows),
            columns=tuple(names[column] for column in columns),
            cases=tuple(cases),
        )


Build: TypeAlias = Callable[[ProvableCost, OrderedProgram], tuple[BuiltModel, Mapping[int, Name]]]
"""Makes the program over a bound's places, and names its columns."""


def _build(cost: ProvableCost, program: OrderedProgram) -> tuple[BuiltModel, Mapping[int, Name]]:
    built = PlaceModel(program).build(cost.places, cost.budget_bytes)
    return built, column_names(built)


def column_names(built: BuiltModel) -> dict[int, Name]:
    """Return the columns' names, see `search.plain_reruns`."""
    names: dict[int, Name] = {}
    for k, (kept, rerun, shared) in enumerate(zip(built.kept, built.rerun, built.shared, strict=True)):
        names.update((column, ("kept", k, buffer)) for buffer, column in kept.items())
        names.update((column, ("rerun", k, op)) for op, column in rerun.items())
        names.update((column, ("pair", k, *pair)) for pair, column in shared.items())
    return names
