"""Addresses for every residency of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UnsupportedError
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.core.progress import Report
from lowtide.engine.analysis.live_ranges import LiveRanges, StorageBlocks, live_ranges, storage_blocks
from lowtide.engine.graph import Graph
from lowtide.engine.packing.buffers import Buffers, Ints
from lowtide.engine.packing.pack import Packed, pack
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP, Addresses

_MOST_OPS = 30_000
_MOST_BLOCKS = 10_000
_MOST_PAIRS = 5_000_000
_ADVICE = "pack it for one order, without `concurrent`"


@dataclass(frozen=True, slots=True)
class Block:
    """Storage of a buffer, of in-place buffers, or of scratch. `producer` is -1 if it exists from the start."""

    touched_by: tuple[int, ...]
    producer: int
    freed: bool


class Reachability:
    """The ops that run after each op in every order, one bit per pair of ops.

    Complexity: O(n e / 8) time and n * n / 8 bytes. Raises UnsupportedError for more than 30,000 ops.
    """

    def __init__(self, graph: Graph) -> None:
        n = graph.n_ops
        if n > _MOST_OPS:
            raise UnsupportedError(f"a graph of {n} ops is too large to find ops that may run at once; {_ADVICE}")
        self._after = np.zeros((n, (n + 7) // 8), np.uint8)
        for op, later in zip(range(n - 1, -1, -1), reversed(list(graph.structure.successors)), strict=True):
            if later:
                row = np.bitwise_or.reduce(self._after[later], axis=0)
                np.bitwise_or.at(row, np.asarray(later) >> 3, (128 >> (np.asarray(later) & 7)).astype(np.uint8))
                self._after[op] = row

    def after_all(self, ops: Sequence[OpId]) -> NDArray[np.bool_]:
        n = len(self._after)
        return np.unpackbits(np.bitwise_and.reduce(self._after[list(ops)], axis=0), count=n).astype(np.bool_)


@dataclass(frozen=True, slots=True)
class Packing:
    """The address of every residency, and the arena of each memory space."""

    addresses: Addresses
    arena_bytes: Mapping[str, int]
    lower_bound_bytes: Mapping[str, int]
    """Lower bounds, at least the plan's peak."""
    effort: EffortName = DEFAULT_EFFORT
    interrupted: bool = False

    @property
    def total_bytes(self) -> int:
        return sum(self.arena_bytes.values())

    @property
    def is_smallest(self) -> bool:
        return self.arena_bytes == self.lower_bound_bytes


def pack_plan(
    graph: Graph,
    plan: Plan,
    transient: Ints,
    *,
    effort: EffortName = DEFAULT_EFFORT,
    concurrent: bool = False,
    progress: Report | None = None,
) -> Packing:
    """Return addresses for all residencies of a plan, with the smallest arena per space that `pack` finds.

    `transient` holds scratch bytes per op and space. In-place results share an address. With `concurrent`, ops may run
    at once or in any order that dependencies allow; raises UnsupportedError as `refuse_fixed_order`.
    """
    reach = Reachability(graph) if concurrent else None
    if reach is not None:
        refuse_fixed_order(graph, plan, reach)
    ranges = live_ranges(graph, plan)
    blocks = storage_blocks(graph, ranges)
    chains = [] if reach is None else _chains(ranges, blocks)
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    packed: dict[str, Packed] = {}
    offsets = np.zeros(len(blocks), np.int64)
    for position, space in enumerate(graph.spaces):
        lasting = (blocks.first_steps < blocks.last_steps) & (blocks.sizes > 0)
        here = np.flatnonzero((blocks.spaces == position) & lasting)
        scratch = transient[plan.targets[runs], position]
        busy = runs[scratch > 0]
        buffers = Buffers(
            first=np.concatenate([blocks.first_steps[here], busy]),
            last=np.concatenate([blocks.last_steps[here], busy + 1]),
            sizes=np.concatenate([blocks.sizes[here], scratch[scratch > 0]]),
            alignment=space.alignment,
        )
        if reach is not None:
            freed = blocks.last_steps < plan.n_steps
            placed = [block_of_chain(graph, chains[block], freed=freed[block]) for block in here]
            placed += [Block((op,), op, freed=True) for op in plan.targets[busy].tolist()]
            buffers = replace(buffers, apart=concurrent_pairs(placed, reach))
        packed[space.name] = pack(buffers, effort=effort, progress=progress)
        offsets[here] = packed[space.name].offsets[: len(here)]
    first_steps = np.where(ranges.first_steps < ranges.last_steps, ranges.first_steps, BEFORE_THE_FIRST_STEP)
    residencies = (ranges.buffers, first_steps, ranges.last_steps, ranges.spaces, offsets[blocks.of_residency])
    table = np.stack([column.astype(np.int64) for column in residencies], axis=1)
    return Packing(
        Addresses(table[graph.sizes[ranges.buffers] > 0]),
        {name: result.arena_bytes for name, result in packed.items()},
        {name: result.lower_bound_bytes for name, result in packed.items()},
        effort=effort,
        interrupted=any(result.status == "interrupted" for result in packed.values()),
    )


def _chains(ranges: LiveRanges, blocks: StorageBlocks) -> list[list[int]]:
    chains: list[list[int]] = [[] for _ in range(len(blocks))]
    block_of: list[int] = blocks.of_residency.tolist()
    for buffer, block in zip(ranges.buffers.tolist(), block_of, strict=True):
        chains[block].append(buffer)
    return chains


def refuse_fixed_order(graph: Graph, plan: Plan, reach: Reachability) -> None:
    """Raise UnsupportedError unless a plan is correct in every order that dependencies allow.

    Refused are copies, recomputed ops, and ops that reuse a buffer in place while another may need it.
    """
    runs = plan.order()
    if len(np.unique(runs)) < len(runs) or (np.isin(plan.kinds, (StepKind.RUN, StepKind.FREE), invert=True)).any():
        raise UnsupportedError(f"the plan recomputes ops or copies buffers, which needs a fixed order; {_ADVICE}")
    for _, op, pairs in plan.taken_pairs():
        for read, _ in pairs:
            for user in _touching(graph, read):
                if user != op and not reach.after_all([user])[op]:
                    raise UnsupportedError(
                        f"op {graph.op_names[op]} reuses the storage of {graph.buffer_names[read]} while "
                        f"{graph.op_names[user]} may still use it; plan without in-place pairs, or {_ADVICE}"
                    )


def block_of_chain(graph: Graph, buffers: Sequence[BufferId], *, freed: bool) -> Block:
    touching = {op for buffer in buffers for op in _touching(graph, buffer)}
    return Block(tuple(sorted(touching)), int(graph.structure.producers[buffers[0]]), freed)


def concurrent_pairs(blocks: Sequence[Block], reach: Reachability) -> Ints:
    """Return ascending pairs of blocks that are alive together in some execution; O(b (n + b)) for b blocks.

    Raises UnsupportedError for more than 10,000 blocks or 5,000,000 pairs.
    """
    if len(blocks) > _MOST_BLOCKS:
        raise UnsupportedError(f"{len(blocks)} buffers are too many to find those alive at once; {_ADVICE}")
    producers = np.asarray([block.producer for block in blocks], np.int64)
    separate = np.zeros((len(blocks), len(blocks)), np.bool_)
    for number, block in enumerate(blocks):
        if block.freed and block.touched_by:
            separate[number] = reach.after_all(block.touched_by)[producers] & (producers >= 0)
    together = np.triu(~(separate | separate.T), 1)
    count = int(together.sum())
    if count > _MOST_PAIRS:
        raise UnsupportedError(f"{count} pairs of buffers may be alive at once, more than {_MOST_PAIRS}; {_ADVICE}")
    return np.argwhere(together).astype(np.int64)


def _touching(graph: Graph, buffer: BufferId) -> list[int]:
    producer = int(graph.structure.producers[buffer])
    return [*graph.structure.users[buffer].tolist(), *([producer] if producer >= 0 else [])]
