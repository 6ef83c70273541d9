"""Stretches of a program that repeat, such as its layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.graph import Graph
from lowtide.engine.recompute.program import Ints

_LEAST_PERIODS = 3
_MAX_COMPARED = 50_000_000
"""Limit on ops times periods, about 500,000,000 per second."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Places `first` to `end - 1`, each op matching the one a period before."""

    first: Place
    end: Place
    period: int

    @property
    def periods(self) -> int:
        return (self.end - self.first) // self.period


def longest_stretch(classes: Ints) -> Stretch | None:
    """Return the longest stretch that repeats a period at least three times, or None.

    Ties go to the shortest period, then the first stretch. O(ops * periods). Very long programs try only short periods.
    """
    best: tuple[int, int, int] | None = None
    for period in range(1, min(len(classes) // _LEAST_PERIODS, _MAX_COMPARED // max(1, len(classes))) + 1):
        same = np.zeros(len(classes) - period + 2, np.int8)
        same[1:-1] = classes[:-period] == classes[period:]
        edges = np.flatnonzero(np.diff(same))
        if not len(edges):
            continue
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        longest = int(lengths.argmax())
        found = (int(lengths[longest]) + period, -period, -int(starts[longest]))
        if lengths[longest] >= (_LEAST_PERIODS - 1) * period and (best is None or found > best):
            best = found
    return None if best is None else Stretch(-best[2], -best[2] + best[0], -best[1])


def long_stretches(classes: Ints, least_ops: int) -> Iterator[Stretch]:
    """Yield disjoint stretches of at least `least_ops`, longest first. O(ops * periods) each."""
    left = classes.copy()
    while (found := longest_stretch(left)) is not None and found.end - found.first >= least_ops:
        yield found
        fresh = int(left.max()) + 1
        left[found.first : found.end] = np.arange(fresh, fresh + found.end - found.first)


def op_classes(graph: Graph, ops: Sequence[OpId]) -> Ints:
    """Return a number per op, equal for equal kinds and buffer sizes."""
    sizes: list[int] = graph.sizes.tolist()
    reads: list[list[int]] = list(graph.reads)
    writes: list[list[int]] = list(graph.writes)
    numbers: dict[tuple[str, tuple[int, ...], tuple[int, ...]], int] = {}
    found: list[int] = []
    for op in ops:
        read, written = (tuple(sizes[buffer] for buffer in row[op]) for row in (reads, writes))
        found.append(numbers.setdefault((graph.op_kinds[op], read, written), len(numbers)))
    return np.asarray(found, np.int32)
