"""The mixed-integer program over a few cuts of a base order: which buffers stay at each, what runs again after it.

After Jain et al., "Checkmate" (2020), with memory counted at a few places only. It is a relaxation: every plan with
the base order as its first-execution order gives a solution that costs no more, so its optimum bounds the extra cost
from below. Played by `Program.execute`, a solution costs exactly its objective, but may need more memory between cuts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Lifetime
from lowtide.recompute.floor import Needs, can_be_remade, first_and_last_use, needs_by_place, possible_pairs
from lowtide.recompute.program import Cuts, Execution, Program
from lowtide.recompute.rules import rerun_until_at_most

_ALWAYS = -1
_NEVER = -2
_SLACK = 1e-7
"""Added to every memory row, so that rounding in the solver never excludes a plan; a relaxation as well."""


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


class CutModel:
    """Builds the program of one base order for any cuts and budget; what does not depend on them is derived once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        graph = program.problem.graph
        self.needs: Needs = needs_by_place(program)
        self.remade = can_be_remade(graph).tolist()
        first, last = first_and_last_use(program)
        self.first, self.last = first.tolist(), last.tolist()
        self.sizes = program.counted_sizes.tolist()
        self.touches: list[list[int]] = list(graph.structure.touches)
        self.allocates: list[list[int]] = list(graph.structure.allocates)
        self.producers: list[int] = graph.structure.producers.tolist()
        self.order: list[int] = program.order.tolist()
        free = (graph.sizes == 0) | (graph.lifetimes <= Lifetime.INPUT)
        self.always = free.tolist()  # resident at no price
        self.outputs = np.flatnonzero((graph.lifetimes == Lifetime.OUTPUT) & (graph.structure.producers >= 0)).tolist()
        self.rerun_needs = _rerun_needs(program)
        self.rerun_until: list[int] = rerun_until_at_most(graph, program.order).tolist()

    def build(
        self, places: Sequence[int], budget_bytes: int, reserves: Mapping[int, int] | None = None
    ) -> "BuiltModel":
        """Return the program with memory rows at the given places, ascending.

        `reserves` holds bytes to leave free at some of them; with any, the program bounds nothing any more.
        """
        return ModelBuilder(self, places, budget_bytes, reserves or {}).build()


@dataclass(frozen=True, slots=True, eq=False)
class BuiltModel:
    """A mixed-integer program with what its columns mean."""

    places: Sequence[int]
    milp: MixedIntegerProgram
    kept: Sequence[dict[int, int]]
    """Per cut, buffer -> column: resident at the cut."""
    rerun: Sequence[dict[int, int]]
    """Per cut, op -> column: runs again between this cut and the next."""
    shared: Sequence[dict[tuple[int, int], int]]
    """Per cut, in-place pair -> column: taken by the op at the cut."""

    def cuts(self, program: Program, solution: NDArray[np.float64]) -> Cuts:
        """Return what a solution drops, as cuts to play."""
        last_use = program.native.last_use
        listed: list[tuple[int, int]] = []
        for place, columns in zip(self.places, self.kept, strict=True):
            moment = 2 * place + 1
            for buffer, column in columns.items():
                if (solution[column] > 0.5) != (last_use[buffer] >= moment):
                    listed.append((moment, buffer))
        moments = np.asarray([2 * place + 1 for place in self.places], np.int32)
        return Cuts(moments, np.asarray(listed, np.int32).reshape(-1, 2))

    def solution(self, program: Program, execution: Execution) -> NDArray[np.float64]:
        """Return the solution that an execution of the same program stands for."""
        values = np.zeros(len(self.milp.cost))
        graph, places = program.problem.graph, program.places
        is_first = places[execution.runs] == execution.stages
        again: list[int] = execution.runs[~is_first].tolist()
        stages: list[int] = execution.stages[~is_first].tolist()
        for op, stage in zip(again, stages, strict=True):
            cut = bisect_left(self.places, stage) - 1
            if cut >= 0 and op in self.rerun[cut]:
                values[self.rerun[cut][op]] = 1
        lengths = np.diff(graph.structure.touches.offsets) + np.diff(graph.structure.allocates.offsets)
        first_access = np.cumsum(lengths[execution.runs]) - lengths[execution.runs]
        run_of_place = np.flatnonzero(is_first)
        marks = {int(run_of_place[place]): cut for cut, place in enumerate(self.places)}
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


class ModelBuilder:
    """Columns and rows of one program, cut by cut; other rooms add columns of their own."""

    def __init__(self, model: CutModel, places: Sequence[int], budget: int, reserves: Mapping[int, int]) -> None:
        self.model, self.places, self.budget, self.reserves = model, list(places), budget, reserves
        self.cost: list[float] = []
        self.rows = ModelRows()
        self.continuous: list[int] = []
        self.kept: list[dict[int, int]] = []
        self.rerun: list[dict[int, int]] = []
        self.shared: list[dict[tuple[int, int], int]] = []

    def build(self) -> BuiltModel:
        """Return the program."""
        wanted = self._wanted_per_cut()
        for cut in range(len(self.places)):
            self.add_columns(cut, wanted[cut])
            self._add_rows(cut, wanted[cut])
        self.finish()
        rows = self.rows
        milp = MixedIntegerProgram(
            np.asarray(self.cost),
            np.asarray(rows.starts, np.int32),
            np.asarray(rows.columns, np.int32),
            np.asarray(rows.values),
            np.asarray(rows.lower),
            np.asarray(rows.upper),
            np.asarray(self.continuous, np.int32),
        )
        return BuiltModel(self.places, milp, self.kept, self.rerun, self.shared)

    def _needed(self, cut: int) -> list[int]:
        """Buffers that exist at a cut and that the base order uses between it and the next, ascending."""
        model, place = self.model, self.places[cut]
        is_last = cut + 1 == len(self.places)
        until = len(model.order) if is_last else self.places[cut + 1] + 1
        needed = {b for op in model.order[place + 1 : until] for b in model.touches[op]}
        if is_last:
            needed.update(model.outputs)
        return sorted(b for b in needed if model.first[b] <= place and not model.always[b])

    def _wanted_per_cut(self) -> list[tuple[list[int], list[int]]]:
        """Per cut: what is needed after it, and all buffers that may help to provide that or what later cuts need."""
        wanted: list[tuple[list[int], list[int]]] = []
        helpful: set[int] = set()
        for cut in reversed(range(len(self.places))):
            needed = self._needed(cut)
            stack = [b for b in needed if b not in helpful]
            helpful.update(needed)
            while stack:
                buffer = stack.pop()
                if not self.model.remade[buffer]:
                    continue
                for read in self.model.touches[self.model.producers[buffer]]:
                    if read not in helpful and not self.model.always[read]:
                        helpful.add(read)
                        stack.append(read)
            wanted.append((needed, sorted(b for b in helpful if self.model.first[b] <= self.places[cut])))
        return wanted[::-1]

    def other_supply(self, cut: int, buffer: int) -> Sequence[int]:
        """Return columns that make a buffer available after a cut in another way than those here."""
        del cut, buffer
        return ()

    def finish(self) -> None:
        """Add what concerns all cuts together."""

    def column(self, cost: float) -> int:
        """Add a column and return its number."""
        self.cost.append(cost)
        return len(self.cost) - 1

    def add_columns(self, cut: int, wanted: tuple[list[int], list[int]]) -> None:
        """Add the columns of one cut: for what is needed after it, and for all that may help."""
        model, place = self.model, self.places[cut]
        op = model.order[place]
        present = {*model.touches[op], *model.allocates[op]}
        kept: dict[int, int] = {}
        rerun: dict[int, int] = {}
        for buffer in wanted[1]:
            if buffer not in present and (model.remade[buffer] or model.last[buffer] <= place):
                kept[buffer] = self.column(0.0)
            producer = model.producers[buffer]
            in_time = model.remade[buffer] and model.rerun_until[producer] > 2 * place + 2
            if in_time and producer not in rerun and model.rerun_needs[producer] <= self.budget:
                rerun[producer] = self.column(float(model.program.cost[producer]))
        pairs = possible_pairs(model.program, op, model.needs.pinned_until)
        self.kept.append(kept)
        self.rerun.append(rerun)
        self.shared.append({pair: self.column(0.0) for pair in pairs})

    def _held(self, cut: int, buffer: int) -> tuple[int, list[int]]:
        """Say whether a buffer that exists at a cut is held across it (a column, always or never), and which columns of
        pairs take it over there."""
        model, op = self.model, self.model.order[self.places[cut]]
        if buffer in self.kept[cut]:
            return self.kept[cut][buffer], []
        taken = [column for (read, _), column in self.shared[cut].items() if read == buffer]
        if model.always[buffer] or buffer in model.touches[op] or buffer in model.allocates[op]:
            return _ALWAYS, taken
        return (_ALWAYS if not model.remade[buffer] and model.last[buffer] > self.places[cut] else _NEVER), taken

    def _require(self, cut: int, buffer: int, column: int | None) -> None:
        """Add a row: a buffer is available after a cut, if a column says so (None: in any case)."""
        model = self.model
        held, taken = self._held(cut, buffer)
        if held == _ALWAYS and not taken:
            return
        terms = [(taken_by, -1.0) for taken_by in taken]
        if held >= 0:
            terms.append((held, 1.0))
        producer = model.producers[buffer]
        if model.remade[buffer] and producer in self.rerun[cut]:
            terms.append((self.rerun[cut][producer], 1.0))
        terms += [(supply, 1.0) for supply in self.other_supply(cut, buffer)]
        if column is not None:
            terms.append((column, -1.0))
        bound = (1.0 if column is None else 0.0) - (1.0 if held == _ALWAYS else 0.0)
        self.rows.add(terms, bound, np.inf)

    def _add_rows(self, cut: int, wanted: tuple[list[int], list[int]]) -> None:
        model, place = self.model, self.places[cut]
        for buffer in wanted[0]:
            self._require(cut, buffer, None)
        for op, column in self.rerun[cut].items():
            for buffer in model.touches[op]:
                if not model.always[buffer]:
                    self._require(cut, buffer, column)
        if cut:
            for buffer, column in self.kept[cut].items():
                if model.first[buffer] <= self.places[cut - 1]:
                    self._require(cut - 1, buffer, column)
        for side in (0, 1):
            groups: dict[int, list[int]] = {}
            for pair, column in self.shared[cut].items():
                groups.setdefault(pair[side], []).append(column)
            for columns in groups.values():
                if len(columns) > 1:
                    self.rows.add([(column, 1.0) for column in columns], -np.inf, 1.0)
        terms = [(column, float(model.sizes[b])) for b, column in self.kept[cut].items() if model.sizes[b]]
        terms += [(column, -float(model.sizes[read])) for (read, _), column in self.shared[cut].items()]
        fixed = int(model.needs.total[place] + model.needs.shared[place]) + self.reserves.get(place, 0)
        unit = max(1.0, float(self.budget - fixed))
        self.rows.add([(column, size / unit) for column, size in terms], -np.inf, (self.budget - fixed) / unit + _SLACK)


def _rerun_needs(program: Program) -> list[int]:
    """Return, per op, bytes that are resident whenever it runs again: its own and the inputs that stay, less all that
    in-place pairs may save."""
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
