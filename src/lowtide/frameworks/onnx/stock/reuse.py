"""Reuse of storage by the stock runtime."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph, Lifetime
from lowtide.frameworks.onnx.shapes.known_forms import Form

_OF_A_SCALAR = 1


class StockRole(Enum):
    """The content of a block."""

    VALUE = "value"
    RESULT = "result"
    """Outlives the run."""
    WORKSPACE = "workspace"


@dataclass(slots=True)
class Allocations:
    """Blocks of a run, allocated and freed in order."""

    sizes: list[int] = field(default_factory=list[int])
    roles: list[StockRole] = field(default_factory=list[StockRole])
    events: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """Block, and whether allocated or freed; results stay."""
    results: dict[int, int] = field(default_factory=dict[int, int])
    """Block by buffer."""

    def add(self, size: int, role: StockRole) -> int:
        self.sizes.append(size)
        self.roles.append(role)
        return len(self.sizes) - 1

    def splice(self, run: "Allocations") -> Mapping[int, int]:
        """Append a callee's run; return its results' blocks by buffer."""
        first = len(self.sizes)
        self.sizes += run.sizes
        self.roles += [StockRole.WORKSPACE] * len(run.sizes)
        self.events += [(first + block, made) for block, made in run.events]
        return {buffer: first + block for buffer, block in run.results.items()}

    @property
    def peak_bytes(self) -> int:
        changes = [self.sizes[block] if made else -self.sizes[block] for block, made in self.events]
        return int(np.cumsum(changes).max(initial=0)) if changes else 0


@dataclass(frozen=True, slots=True)
class StockStep:
    """An op's node, or a shape node, counted to its input's writer."""

    op: int
    reads: Sequence[int]
    writes: Sequence[int]
    is_op: bool = True


@dataclass(frozen=True, slots=True)
class CalledRuns:
    """Runs of callees."""

    run: Allocations
    """Remaining blocks are freed when the op ends."""
    results_last: bool = False
    """Whether the op's own results come last."""


def stock_allocations(
    graph: Graph,
    forms: Sequence[Form | None],
    steps: Sequence[StockStep],
    workspaces: NDArray[np.int64],
    calls: Mapping[int, CalledRuns],
) -> Allocations:
    """Return the allocations of a graph's steps, with memory reuse.

    `workspaces` (bytes) and `calls` are by op. Source: the allocation planner of ONNX Runtime 1.31, which never reuses
    storage of inputs and weights. Complexity: O(reads + dead blocks) per value.
    """
    made = Allocations()
    planner = _Planner(graph, forms, made, steps)
    made_at = [planner.plan(step) for step in steps]
    last = {block: place for place, step in enumerate(steps) for block in planner.blocks_of(step)}
    freed_at: list[list[int]] = [[] for _ in steps]
    for block, place in last.items():
        if made.roles[block] is StockRole.VALUE:
            freed_at[place].append(block)
    for place, step in enumerate(steps):
        if step.is_op and step.op in calls:
            _add_call(made, calls[step.op], made_at[place])
            made.events += [(block, False) for block in freed_at[place]]
            continue
        made.events += [(block, True) for block in made_at[place]]
        if step.is_op and workspaces[step.op]:
            block = made.add(int(workspaces[step.op]), StockRole.WORKSPACE)
            made.events += [(block, True), (block, False)]
        made.events += [(block, False) for block in freed_at[place]]
    return made


def _add_call(made: Allocations, call: CalledRuns, results: Sequence[int]) -> None:
    new = [(block, True) for block in results]
    if not call.results_last:
        made.events += new
    first = len(made.sizes)
    made.splice(call.run)
    if call.results_last:
        made.events += new
    freed = {block for block, is_made in call.run.events if not is_made}
    made.events += [(first + block, False) for block in range(len(call.run.sizes)) if block not in freed]


class _Planner:
    def __init__(
        self, graph: Graph, forms: Sequence[Form | None], made: Allocations, steps: Sequence[StockStep]
    ) -> None:
        self._graph = graph
        self._forms = forms
        self._made = made
        self._block_of: dict[int, int] = {}
        self._form_of: dict[int, Form | None] = {}
        self._left: dict[int, int] = {}
        """By block."""
        self._dead: list[int] = []
        """Last freed first."""
        self._uses = np.zeros(graph.n_buffers, np.int64)
        for step in steps:
            self._uses[list(dict.fromkeys(step.reads))] += 1

    def plan(self, step: StockStep) -> list[int]:
        new: list[int] = []
        for buffer in step.writes:
            block = self._in_place(step.op, buffer) if step.is_op else None
            if block is None:
                block = self._reused(buffer)
            if block is None:
                is_result = self._graph.lifetimes[buffer] == Lifetime.OUTPUT
                block = self._made.add(
                    int(self._graph.sizes[buffer]), StockRole.RESULT if is_result else StockRole.VALUE
                )
                if is_result:
                    self._made.results[buffer] = block
                self._form_of[block] = self._forms[buffer]
                new.append(block)
            self._block_of[buffer] = block
            self._left[block] = self._left.get(block, 0) + int(self._uses[buffer])
        for block in dict.fromkeys(self._blocks_read(step)):
            self._left[block] -= 1
            if not self._left[block] and self._made.roles[block] is StockRole.VALUE:
                self._dead.insert(0, block)
        return new

    def blocks_of(self, step: StockStep) -> Iterator[int]:
        yield from self._blocks_read(step)
        yield from (self._block_of[buffer] for buffer in step.writes)

    def _blocks_read(self, step: StockStep) -> Iterator[int]:
        return (self._block_of[buffer] for buffer in dict.fromkeys(step.reads) if buffer in self._block_of)

    def _in_place(self, op: int, buffer: int) -> int | None:
        for source, target in self._graph.in_place[op].reshape(-1, 2).tolist():
            block = self._block_of.get(source)
            if target == buffer and block is not None and self._left[block] == 1:
                return block
        return None

    def _reused(self, buffer: int) -> int | None:
        form = self._forms[buffer]
        if self._graph.lifetimes[buffer] == Lifetime.OUTPUT or form is None or len(form) == _OF_A_SCALAR:
            return None
        fitting = (block for block in self._dead if self._form_of[block] == form)
        block = next(fitting, None)
        if block is not None:
            self._dead.remove(block)
        return block
