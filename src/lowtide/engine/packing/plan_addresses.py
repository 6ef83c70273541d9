"""Addresses for every residency of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.progress import Report
from lowtide.engine.analysis.live_ranges import LiveRanges, StorageBlocks, live_ranges, storage_blocks
from lowtide.engine.graph import Graph
from lowtide.engine.packing.buffers import Buffers
from lowtide.engine.packing.concurrent import (
    Block,
    Reachability,
    block_of_chain,
    concurrent_pairs,
    refuse_what_needs_its_order,
)
from lowtide.engine.packing.pack import pack
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP, Addresses

if TYPE_CHECKING:
    from lowtide.engine.packing.packed import Packed


@dataclass(frozen=True, slots=True)
class Packing:
    """Where everything lies, and how large each memory space's arena must be."""

    addresses: Addresses
    arena_bytes: Mapping[str, int]
    lower_bound_bytes: Mapping[str, int]
    """The least arena of this plan, as far as it is known; no less than the plan's peak."""
    effort: EffortName = DEFAULT_EFFORT
    """How much work the search was allowed."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search for tighter places."""

    @property
    def total_bytes(self) -> int:
        """The arenas of all memory spaces together."""
        return sum(self.arena_bytes.values())

    @property
    def is_smallest(self) -> bool:
        """Whether no other packing of this plan has a smaller arena in any memory space."""
        return self.arena_bytes == self.lower_bound_bytes


def pack_plan(
    graph: Graph,
    plan: Plan,
    transient: NDArray[np.int64],
    *,
    effort: EffortName = DEFAULT_EFFORT,
    concurrent: bool = False,
    progress: Report | None = None,
) -> Packing:
    """Give every residency of a plan an address, with the smallest arena per space that `pack` finds.

    `transient` holds the bytes that every op needs while it runs, shape (ops, spaces); they are packed too, without an
    address in the result. A buffer that takes over another one's storage gets its address. With `concurrent`, the
    addresses also hold for an executor that runs ops in any order that their dependencies allow, or at once; what is
    alive together then follows from reachability.
    Raises UnsupportedError if `concurrent` cannot be had (see `lowtide.engine.packing.concurrent`).
    """
    reach = Reachability(graph) if concurrent else None
    if reach is not None:
        refuse_what_needs_its_order(graph, plan, reach)
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
            ops = plan.targets[busy].tolist()
            together = concurrent_pairs(
                [
                    *(
                        block_of_chain(graph, chains[block], freed=blocks.last_steps[block] < plan.n_steps)
                        for block in here
                    ),
                    *(Block((op,), op, freed=True) for op in ops),
                ],
                reach,
            )
            buffers = replace(buffers, apart=together)
        packed[space.name] = pack(buffers, effort=effort, progress=progress)
        offsets[here] = packed[space.name].offsets[: len(here)]
    residencies = (
        ranges.buffers,
        np.where(ranges.first_steps < ranges.last_steps, ranges.first_steps, BEFORE_THE_FIRST_STEP),
        ranges.last_steps,
        ranges.spaces,
        offsets[blocks.of_residency],
    )
    table = np.stack([column.astype(np.int64) for column in residencies], axis=1)
    return Packing(
        Addresses(table[graph.sizes[ranges.buffers] > 0]),
        {name: result.arena_bytes for name, result in packed.items()},
        {name: result.lower_bound_bytes for name, result in packed.items()},
        effort=effort,
        interrupted=any(result.status == "interrupted" for result in packed.values()),
    )


def _chains(ranges: LiveRanges, blocks: StorageBlocks) -> list[list[int]]:
    """Return the buffers that have a block one after the other."""
    chains: list[list[int]] = [[] for _ in range(len(blocks))]
    block_of: list[int] = blocks.of_residency.tolist()
    for buffer, block in zip(ranges.buffers.tolist(), block_of, strict=True):
        chains[block].append(buffer)
    return chains
