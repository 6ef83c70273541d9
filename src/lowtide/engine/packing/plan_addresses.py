"""Addresses for every residency of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.progress import Report
from lowtide.engine.analysis.live_ranges import LiveRanges, live_ranges
from lowtide.engine.analysis.storage_blocks import StorageBlocks, storage_blocks
from lowtide.engine.graph import Graph
from lowtide.engine.packing.buffers import Buffers
from lowtide.engine.packing.concurrent import Block, Reachability, block_of_chain, concurrent_pairs, refuse_fixed_order
from lowtide.engine.packing.pack import pack
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP, Addresses

if TYPE_CHECKING:
    from lowtide.engine.packing.packed import Packed


@dataclass(frozen=True, slots=True)
class Packing:
    """The address of every residency, and the arena of each memory space."""

    addresses: Addresses
    arena_bytes: Mapping[str, int]
    lower_bound_bytes: Mapping[str, int]
    """Lower bounds of the arenas, at least the plan's peak."""
    effort: EffortName = DEFAULT_EFFORT
    interrupted: bool = False

    @property
    def total_bytes(self) -> int:
        return sum(self.arena_bytes.values())

    @property
    def is_smallest(self) -> bool:
        """Whether no packing of this plan has a smaller arena."""
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
    """Return addresses for all residencies of a plan, with the smallest arena per space that `pack` finds.

    `transient` holds the scratch bytes per op and space, which are packed without an address in the result. In-place
    results share an address. With `concurrent`, the addresses hold for an executor that runs ops in any order their
    dependencies allow, or at once.
    Raises UnsupportedError if `concurrent` is impossible (see `refuse_fixed_order`).
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
    """Return the buffers of each block, in order."""
    chains: list[list[int]] = [[] for _ in range(len(blocks))]
    block_of: list[int] = blocks.of_residency.tolist()
    for buffer, block in zip(ranges.buffers.tolist(), block_of, strict=True):
        chains[block].append(buffer)
    return chains
