"""What the stock runtime allocates in an order of ops: which values share storage by its own rules, freed when."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime


class StockRole(Enum):
    """What a block holds."""

    VALUE = "value"
    RESULT = "result"
    """It outlives the run."""
    WORKSPACE = "workspace"


@dataclass(slots=True)
class Allocations:
    """The blocks of a run, and in which order they are made and freed."""

    sizes: list[int] = field(default_factory=list[int])
    roles: list[StockRole] = field(default_factory=list[StockRole])
    events: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """A block's number, and whether it is made; results are never freed."""
    results: dict[int, int] = field(default_factory=dict[int, int])
    """By buffer, the blocks of results."""

    def add(self, size: int, role: StockRole) -> int:
        """Add a block and return its number."""
        self.sizes.append(size)
        self.roles.append(role)
        return len(self.sizes) - 1

    def splice(self, run: "Allocations") -> Mapping[int, int]:
        """Add all that happens in a run of something that is called; return the blocks of its results, by buffer."""
        first = len(self.sizes)
        self.sizes += run.sizes
        self.roles += [StockRole.WORKSPACE] * len(run.sizes)
        self.events += [(first + block, made) for block, made in run.events]
        return {buffer: first + block for buffer, block in run.results.items()}

    @property
    def peak_bytes(self) -> int:
        """The most that is allocated at once."""
        changes = [self.sizes[block] if made else -self.sizes[block] for block, made in self.events]
        return int(np.cumsum(changes).max(initial=0)) if changes else 0


@dataclass(frozen=True, slots=True)
class CalledRuns:
    """What happens while an op runs that calls others."""

    run: Allocations
    """Blocks that are not freed in it are when the op has ended."""
    results_last: bool = False
    """Whether the results of the op are made at its end."""


def stock_allocations(
    graph: Graph,
    forms: Sequence[Hashable],
    order: Sequence[int],
    workspaces: NDArray[np.int64],
    calls: Mapping[int, CalledRuns],
) -> Allocations:
    """Return what the runtime allocates when it runs the ops in an order, with its memory reuse on.

    `forms` holds the type and shape of each buffer, None where unknown; `workspaces` the bytes each op needs while it
    runs, `calls` what happens in ops that have none.
    Source: the allocation planner of ONNX Runtime 1.31. A result of the model has storage of its own. Another
    value takes over that of an input which dies there, where the kernel can do that; else the storage that died last
    among those of the same shape and size of elements; else new storage. Inputs and weights are never taken over.
    Complexity: O(reads + values that are dead at once, for each value).
    """
    made = Allocations()
    planner = _Planner(graph, forms, made)
    made_at = [planner.plan(op) for op in order]
    last = {block: place for place, op in enumerate(order) for block in planner.blocks_of(op)}
    freed_at: list[list[int]] = [[] for _ in order]
    for block, place in last.items():
        if made.roles[block] is StockRole.VALUE:
            freed_at[place].append(block)
    for place, op in enumerate(order):
        if op in calls:
            _add_call(made, calls[op], made_at[place])
            made.events += [(block, False) for block in freed_at[place]]
            continue
        made.events += [(block, True) for block in made_at[place]]
        if workspaces[op]:
            block = made.add(int(workspaces[op]), StockRole.WORKSPACE)
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
    """Gives every buffer a block, op by op."""

    def __init__(self, graph: Graph, forms: Sequence[Hashable], made: Allocations) -> None:
        self._graph = graph
        self._forms = forms
        self._made = made
        self._block_of: dict[int, int] = {}
        self._form_of: dict[int, Hashable] = {}
        """By block, what it was made for."""
        self._left: dict[int, int] = {}
        """By block, how many ops will still read what lies in it."""
        self._dead: list[int] = []
        """Blocks to take over, the one that died last first."""
        self._uses = np.zeros(graph.n_buffers, np.int64)
        for op in range(graph.n_ops):
            self._uses[self._used(op)] += 1

    def plan(self, op: int) -> list[int]:
        """Place what an op writes, and return the blocks that are new."""
        new: list[int] = []
        for buffer in self._graph.writes[op].tolist():
            block = self._in_place(op, buffer)
            if block is None:
                block = self._taken_over(buffer)
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
        for block in dict.fromkeys(self._blocks_read(op)):
            self._left[block] -= 1
            if not self._left[block] and self._made.roles[block] is StockRole.VALUE:
                self._dead.insert(0, block)
        return new

    def blocks_of(self, op: int) -> Iterator[int]:
        """Iterate the blocks that an op reads or writes, once all are placed."""
        yield from self._blocks_read(op)
        yield from (self._block_of[buffer] for buffer in self._graph.writes[op].tolist())

    def _used(self, op: int) -> list[int]:
        return list(dict.fromkeys([*self._graph.reads[op].tolist(), *self._graph.mutates[op].tolist()]))

    def _blocks_read(self, op: int) -> Iterator[int]:
        return (self._block_of[buffer] for buffer in self._used(op) if buffer in self._block_of)

    def _in_place(self, op: int, buffer: int) -> int | None:
        for source, target in self._graph.in_place[op].reshape(-1, 2).tolist():
            block = self._block_of.get(source)
            if target == buffer and block is not None and self._left[block] == 1:
                return block
        return None

    def _taken_over(self, buffer: int) -> int | None:
        if self._graph.lifetimes[buffer] == Lifetime.OUTPUT or self._forms[buffer] is None:
            return None
        fitting = (block for block in self._dead if self._form_of[block] == self._forms[buffer])
        block = next(fitting, None)
        if block is not None:
            self._dead.remove(block)
        return block
