"""The mixed-integer program that counts memory at a few places and chooses ops to recompute.

Source: Jain et al., "Checkmate" (2020), which counts it at all places. A relaxation: every plan with the base order
gives a solution that costs no more, so the optimum bounds the extra cost. Executed, a solution costs its objective but
may need more memory between counted places.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, Place
from lowtide.engine.graph import Lifetime
from lowtide.engine.recompute.floor import Needs, needs_by_place, possible_pairs
from lowtide.engine.recompute.program import Drops, Execution, OrderedProgram, first_run_at, rerun_until_at_most
from lowtide.engine.recompute.solver import MixedIntegerProgram, ModelRows
from lowtide.engine.search.proof_of_cost import Name

_ALWAYS = -1
_NEVER = -2


class PlaceModel:
    """Builds a base order's program for any places and budget."""

    def __init__(self, program: OrderedProgram) -> None:
        self.program = program
        graph = program.problem.graph
        self.needs: Needs = needs_by_place(program)
        self.recomputable = self.needs.recomputable.tolist()
        self.first, self.last = self.needs.first.tolist(), self.needs.last.tolist()
        self.sizes = program.counted_sizes.tolist()
        self.touches: list[list[int]] = list(graph.structure.touches)
        self.allocates: list[list[int]] = list(graph.structure.allocates)
        self.producers: list[int] = graph.structure.producers.tolist()
        self.order: list[int] = program.order.tolist()
        free = (graph.sizes == 0) | (graph.exists_at_start & graph.exists_at_end)
        self.always = free.tolist()  # resident at no cost
        self.outputs = np.flatnonzero((graph.lifetimes == Lifetime.OUTPUT) & (graph.structure.producers >= 0)).tolist()
        self.rerun_needs = _rerun_needs(program)
        self.rerun_until: list[int] = rerun_until_at_most(graph, program.order).tolist()

    def build(
        self, places: Sequence[Place], budget_bytes: int, reserves: Mapping[int, int] | None = None
    ) -> "BuiltModel":
        """Return the program for ascending places. With `reserves` to leave free, its optimum is no bound."""
        return ModelBuilder(self, places, budget_bytes, reserves or {}).build()


@dataclass(frozen=True, slots=True, eq=False)
class BuiltModel:
    """A mixed-integer program, with columns by counted place."""

    places: Sequence[Place]
    milp: MixedIntegerProgram
    kept: Sequence[dict[int, int]]
    """Buffer -> column: resident there."""
    rerun: Sequence[dict[int, int]]
    """Op -> column: recomputed before the next place."""
    shared: Sequence[dict[tuple[int, int], int]]
    """In-place pair -> column: used by the op there."""

    def drops(self, program: OrderedProgram, solution: NDArray[np.float64]) -> Drops:
        last_use = program.native.last_use
        listed: list[tuple[int, int]] = []
        for place, columns in zip(self.places, self.kept, strict=True):
            moment = first_run_at(place)
            for buffer, column in columns.items():
                if (solution[column] > 0.5) != (last_use[buffer] >= moment):
                    listed.append((moment, buffer))
        moments = np.asarray([first_run_at(place) for place in self.places], np.int32)
        return Drops(moments, np.asarray(listed, np.int32).reshape(-1, 2))

    def solution(self, program: OrderedProgram, execution: Execution) -> NDArray[np.float64]:
        values = np.zeros(len(self.milp.cost))
        graph, places = program.problem.graph, program.places
        is_first = places[execution.runs] == execution.stages
        again: list[int] = execution.runs[~is_first].tolist()
        stages: list[int] = execution.stages[~is_first].tolist()
        for op, stage in zip(again, stages, strict=True):
            number = bisect_left(self.places, stage) - 1
            if number >= 0 and op in self.rerun[number]:
                values[self.rerun[number][op]] = 1
        lengths = np.diff(graph.structure.touches.offsets) + np.diff(graph.structure.allocates.offsets)
        first_access = np.cumsum(lengths[execution.runs]) - lengths[execution.runs]
        run_of_place = np.flatnonzero(is_first)
        marks = {int(run_of_place[place]): number for number, place in enumerate(self.places)}
        pairs = {(int(run), int(read)): int(written) for run, read, written in execution.pairs.tolist()}
        held: dict[int, None] = dict.fromkeys(np.flatnonzero(graph.lifetimes == Lifetime.DONATED).tolist())
        touches: list[list[int]] = list(graph.structure.touches)
        allocates: list[list[int]] = list(graph.structure.allocates)
        runs: list[int] = execution.runs.tolist()
        dies: list[int] = execution.dies.tolist()
        for run, op in enumerate(runs):
            if run in marks:
                for buffer, column in self.kept[marks[run]].items():
                    values[column] = buffer in held
            access = int(first_access[run])
            for buffer in touches[op] + allocates[op]:
                if dies[access]:
                    held.pop(buffer, None)
                    if run in marks and (run, buffer) in pairs:
                        values[self.shared[marks[run]][buffer, pairs[run, buffer]]] = 1
                else:
                    held[buffer] = None
                access += 1
        return values


class ModelBuilder:
    """Builds columns and rows, place by place; `engine.offload` extends it.

    A `number` is an index in `places`.
    """

    def __init__(self, model: PlaceModel, places: Sequence[Place], budget: int, reserves: Mapping[int, int]) -> None:
        self.model, self.places, self.budget, self.reserves = model, list(places), budget, reserves
        self.cost: list[float] = []
        self.rows = ModelRows()
        self.continuous: list[int] = []
        self.kept: list[dict[int, int]] = []
        self.rerun: list[dict[int, int]] = []
        self.shared: list[dict[tuple[int, int], int]] = []

    def build(self) -> BuiltModel:
        wanted = self._relevant_buffers()
        for number in range(len(self.places)):
            self.add_columns(number, wanted[number])
            self._add_rows(number, wanted[number])
        self.finish()
        milp = self.rows.program(self.cost, self.continuous)
        return BuiltModel(self.places, milp, self.kept, self.rerun, self.shared)

    def _needed(self, number: int) -> list[int]:
        model, place = self.model, self.places[number]
        is_last = number + 1 == len(self.places)
        until = len(model.order) if is_last else self.places[number + 1] + 1
        needed = {b for op in model.order[place + 1 : until] for b in model.touches[op]}
        if is_last:
            needed.update(model.outputs)
        return sorted(b for b in needed if model.first[b] <= place and not model.always[b])

    def _relevant_buffers(self) -> list[tuple[list[int], list[int]]]:
        wanted: list[tuple[list[int], list[int]]] = []
        helpful: set[int] = set()
        for number in reversed(range(len(self.places))):
            needed = self._needed(number)
            stack = [b for b in needed if b not in helpful]
            helpful.update(needed)
            while stack:
                buffer = stack.pop()
                if not self.model.recomputable[buffer]:
                    continue
                for read in self.model.touches[self.model.producers[buffer]]:
                    if read not in helpful and not self.model.always[read]:
                        helpful.add(read)
                        stack.append(read)
            wanted.append((needed, sorted(b for b in helpful if self.model.first[b] <= self.places[number])))
        return wanted[::-1]

    def other_sources(self, number: int, buffer: BufferId) -> Sequence[int]:
        """Return columns of other ways to make a buffer available after a place."""
        del number, buffer
        return ()

    def finish(self) -> None:
        """Add rows that concern all places."""

    def column(self, cost: float) -> int:
        self.cost.append(cost)
        return len(self.cost) - 1

    def add_columns(self, number: int, wanted: tuple[list[int], list[int]]) -> None:
        model, place = self.model, self.places[number]
        op = model.order[place]
        present = {*model.touches[op], *model.allocates[op]}
        kept: dict[int, int] = {}
        rerun: dict[int, int] = {}
        for buffer in wanted[1]:
            if buffer not in present and (model.recomputable[buffer] or model.last[buffer] <= place):
                kept[buffer] = self.column(0.0)
            producer = model.producers[buffer]
            in_time = model.recomputable[buffer] and model.rerun_until[producer] > 2 * place + 2
            if in_time and producer not in rerun and model.rerun_needs[producer] <= self.budget:
                rerun[producer] = self.column(float(model.program.cost[producer]))
        pairs = possible_pairs(model.program, op, model.needs.pinned_until)
        self.kept.append(kept)
        self.rerun.append(rerun)
        self.shared.append({pair: self.column(0.0) for pair in pairs})

    def _held(self, number: int, buffer: BufferId) -> tuple[int, list[int]]:
        """Return a kept buffer's column, _ALWAYS or _NEVER, and those of pairs that overwrite it."""
        model, op = self.model, self.model.order[self.places[number]]
        if buffer in self.kept[number]:
            return self.kept[number][buffer], []
        taken = [column for (read, _), column in self.shared[number].items() if read == buffer]
        if model.always[buffer] or buffer in model.touches[op] or buffer in model.allocates[op]:
            return _ALWAYS, taken
        return (
            _ALWAYS if not model.recomputable[buffer] and model.last[buffer] > self.places[number] else _NEVER
        ), taken

    def _require(self, name: Name, number: int, buffer: BufferId, column: int | None) -> None:
        """Add a row: a buffer is available after a place if `column` is 1 or None."""
        model = self.model
        held, taken = self._held(number, buffer)
        if held == _ALWAYS and not taken:
            return
        terms = [(taken_by, -1.0) for taken_by in taken]
        if held >= 0:
            terms.append((held, 1.0))
        producer = model.producers[buffer]
        if model.recomputable[buffer] and producer in self.rerun[number]:
            terms.append((self.rerun[number][producer], 1.0))
        terms += [(supply, 1.0) for supply in self.other_sources(number, buffer)]
        if column is not None:
            terms.append((column, -1.0))
        bound = (1.0 if column is None else 0.0) - (1.0 if held == _ALWAYS else 0.0)
        self.rows.add(name, terms, bound, np.inf)

    def _add_rows(self, number: int, wanted: tuple[list[int], list[int]]) -> None:
        model, place = self.model, self.places[number]
        for buffer in wanted[0]:
            self._require(("used", number, buffer), number, buffer, None)
        for op, column in self.rerun[number].items():
            for buffer in model.touches[op]:
                if not model.always[buffer]:
                    self._require(("read", number, op, buffer), number, buffer, column)
        if number:
            for buffer, column in self.kept[number].items():
                if model.first[buffer] <= self.places[number - 1]:
                    self._require(("kept", number, buffer), number - 1, buffer, column)
        for side in (0, 1):
            groups: dict[int, list[int]] = {}
            for pair, column in self.shared[number].items():
                groups.setdefault(pair[side], []).append(column)
            for buffer, columns in groups.items():
                if len(columns) > 1:
                    terms = [(column, 1.0) for column in columns]
                    self.rows.add(("paired once", number, side, buffer), terms, -np.inf, 1.0)
        terms = [(column, float(model.sizes[b])) for b, column in self.kept[number].items() if model.sizes[b]]
        terms += [(column, -float(model.sizes[read])) for (read, _), column in self.shared[number].items()]
        fixed = int(model.needs.total[place] + model.needs.shared[place]) + self.reserves.get(place, 0)
        room = float(self.budget - fixed)
        self.rows.add(("room", number), terms, -np.inf, room, unit=max(1.0, room))


def _rerun_needs(program: OrderedProgram) -> list[int]:
    graph, sizes = program.problem.graph, program.counted_sizes
    stays = np.where(graph.lifetimes == Lifetime.INPUT, sizes, 0)
    needs = np.full(graph.n_ops, int(stays.sum()))
    for rows in (graph.structure.touches, graph.structure.allocates):
        np.add.at(needs, rows.owners(), (sizes - stays)[rows.values])
    if program.problem.in_place:
        for op in np.flatnonzero(np.diff(graph.in_place.offsets)).tolist():
            written = dict.fromkeys(graph.in_place[op].tolist()[1::2])
            needs[op] -= int(sizes[list(written)].sum())
    return needs.tolist()
