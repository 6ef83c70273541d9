"""Addresses for every residency of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.live_ranges import LiveRanges, live_ranges
from lowtide.graph import Graph, Lifetime
from lowtide.packing.best_fit_by_birth import BestFitByBirth
from lowtide.packing.greedy_by_size import GreedyBySize
from lowtide.plan import Address, Plan, StepKind

_MOST_FOR_QUADRATIC = 20_000


@dataclass(frozen=True, slots=True)
class Packing:
    """Where everything lies, and how large each memory space's arena must be."""

    addresses: tuple[Address, ...]
    arena_bytes: Mapping[str, int]


def pack_plan(graph: Graph, plan: Plan, transient: NDArray[np.int64]) -> Packing:
    """Give every residency of a plan an address; the better of greedy-by-size and best-fit-by-birth, per space.

    `transient` holds the bytes every op needs while it runs, shape (ops, spaces); they take part without a name.
    A buffer that takes over another one's storage gets its address. Guarantees: feasible, deterministic; no bound
    beyond the peak.
    """
    ranges = live_ranges(graph, plan)
    block_of, blocks = _blocks(graph, ranges)
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    arena: dict[str, int] = {}
    offsets = np.zeros(len(blocks), np.int64)
    for position, space in enumerate(graph.spaces):
        here = np.flatnonzero((blocks[:, 0] == position) & (blocks[:, 1] < blocks[:, 2]) & (blocks[:, 3] > 0))
        scratch = transient[plan.targets[runs], position]
        busy = runs[scratch > 0]
        first = np.concatenate([blocks[here, 1], busy])
        last = np.concatenate([blocks[here, 2], busy + 1])
        sizes = np.concatenate([blocks[here, 3], scratch[scratch > 0]])
        placed = _best(first, last, sizes, space.alignment)
        offsets[here] = placed[: len(here)]
        arena[space.name] = int((placed + sizes).max(initial=0))
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
    return Packing(addresses, arena)


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


def _best(
    first: NDArray[np.int64], last: NDArray[np.int64], sizes: NDArray[np.int64], alignment: int
) -> NDArray[np.int64]:
    if not len(sizes):
        return np.zeros(0, np.int64)
    packers = [BestFitByBirth()] if len(sizes) > _MOST_FOR_QUADRATIC else [GreedyBySize(), BestFitByBirth()]
    candidates = [packer.offsets(first, last, sizes, alignment) for packer in packers]
    return min(candidates, key=lambda offsets: int((offsets + sizes).max()))
