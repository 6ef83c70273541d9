"""Addresses for every residency of a plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.live_ranges import LiveRanges, live_ranges
from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.graph import Graph, Lifetime
from lowtide.packing.buffers import Buffers
from lowtide.packing.concurrent import (
    Block,
    Reachability,
    block_of_chain,
    concurrent_pairs,
    refuse_what_needs_its_order,
)
from lowtide.packing.pack import pack
from lowtide.plan import Address, Plan, StepKind

if TYPE_CHECKING:
    from lowtide.packing.packed import Packed


@dataclass(frozen=True, slots=True)
class Packing:
    """Where everything lies, and how large each memory space's arena must be."""

    addresses: tuple[Address, ...]
    arena_bytes: Mapping[str, int]
    lower_bound_bytes: Mapping[str, int]
    """The least arena of this plan, as far as it is known; no less than the plan's peak."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search for tighter places."""


def pack_plan(
    graph: Graph,
    plan: Plan,
    transient: NDArray[np.int64],
    *,
    effort: EffortName = DEFAULT_EFFORT,
    concurrent: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Packing:
    """Give every residency of a plan an address, with the smallest arena per space that `pack` finds.

    `transient` holds the bytes every op needs while it runs, shape (ops, spaces); they take part without a name.
    A buffer that takes over another one's storage gets its address. With `concurrent` the addresses hold, too, for an
    executor that runs ops in any order that their dependencies allow, or at once; what is alive together then follows
    from reachability. Raises UnsupportedError where that cannot be had (see `lowtide.packing.concurrent`).
    """
    reach = Reachability(graph) if concurrent else None
    if reach is not None:
        refuse_what_needs_its_order(graph, plan, reach)
    ranges = live_ranges(graph, plan)
    block_of, blocks = _blocks(graph, ranges)
    chains = _chains(ranges, block_of, len(blocks))
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    packed: dict[str, Packed] = {}
    offsets = np.zeros(len(blocks), np.int64)
    for position, space in enumerate(graph.spaces):
        here = np.flatnonzero((blocks[:, 0] == position) & (blocks[:, 1] < blocks[:, 2]) & (blocks[:, 3] > 0))
        scratch = transient[plan.targets[runs], position]
        busy = runs[scratch > 0]
        buffers = Buffers(
            first=np.concatenate([blocks[here, 1], busy]),
            last=np.concatenate([blocks[here, 2], busy + 1]),
            sizes=np.concatenate([blocks[here, 3], scratch[scratch > 0]]),
            alignment=space.alignment,
        )
        if reach is not None:
            ops = plan.targets[busy].tolist()
            together = concurrent_pairs(
                [
                    *(block_of_chain(graph, chains[block], freed=blocks[block, 2] < plan.n_steps) for block in here),
                    *(Block((op,), op, freed=True) for op in ops),
                ],
                reach,
            )
            buffers = replace(buffers, apart=together)
        packed[space.name] = pack(buffers, effort=effort, progress=progress)
        offsets[here] = packed[space.name].offsets[: len(here)]
    sizes_of = graph.sizes.tolist()
    addresses = tuple(
        Address(*row)
        for row in zip(
            ranges.buffers.tolist(),
            ranges.first_steps.tolist(),
            ranges.last_steps.tolist(),
            ranges.spaces.tolist(),
            offsets[block_of].tolist(),
            strict=True,
        )
        if sizes_of[row[0]] > 0
    )
    return Packing(
        addresses,
        {name: result.arena_bytes for name, result in packed.items()},
        {name: result.lower_bound_bytes for name, result in packed.items()},
        interrupted=any(result.status == "interrupted" for result in packed.values()),
    )


def _chains(ranges: LiveRanges, block_of: NDArray[np.int64], n_blocks: int) -> list[list[int]]:
    """Return the buffers that have a block one after the other."""
    chains: list[list[int]] = [[] for _ in range(n_blocks)]
    for row, buffer in enumerate(ranges.buffers.tolist()):
        chains[int(block_of[row])].append(buffer)
    return chains


def _blocks(graph: Graph, ranges: LiveRanges) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Join residencies that hand their storage on; returns the block of each, and rows (space, first, last, size)."""
    homes, lifetimes = graph.buffer_spaces[ranges.buffers], graph.lifetimes[ranges.buffers]
    at_start = (ranges.first_steps == 0) & (ranges.spaces == homes) & (lifetimes <= Lifetime.DONATED)
    births = ranges.first_steps - at_start  # inputs are all there before the first step, even one freed in it
    block_of = np.empty(len(ranges), np.int64)
    blocks: list[list[int]] = []
    for row, (buffer, space, first, last, continues) in enumerate(
        zip(
            ranges.buffers.tolist(),
            ranges.spaces.tolist(),
            births.tolist(),
            ranges.last_steps.tolist(),
            ranges.continues.tolist(),
            strict=True,
        )
    ):
        if continues < 0:
            block_of[row] = len(blocks)
            blocks.append([space, first, last, int(graph.sizes[buffer])])
        else:
            block_of[row] = block_of[continues]
            blocks[int(block_of[row])][2] = last
    return block_of, np.asarray(blocks, np.int64).reshape(-1, 4)
