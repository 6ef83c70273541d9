"""Repeated layers of a program: the longest stretch of ops that is one period over and over."""

from dataclasses import dataclass

import numpy as np

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.program import Ints, Program

_LEAST_PERIODS = 3
_MOST_COMPARED = 50_000_000
"""Ops times periods that are compared; some 500,000,000 a second."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Places `first` to before `end` of a base order, in which every op is like the one a period before it."""

    first: Place
    end: Place
    period: int


def repeated_stretch(program: Program, before: Place) -> Stretch | None:
    """Return the longest stretch before a place that repeats a period three times or more; None where there is none.

    Ops are alike where their kinds are and the sizes of all that they read and write. Of stretches as long the one of
    the shortest period, then the first. O(ops * periods), vectorized; of very long programs only short periods are
    looked for.
    """
    alike = _alike(program, before)
    best: tuple[int, int, int] | None = None
    for period in range(1, min(len(alike) // _LEAST_PERIODS, _MOST_COMPARED // max(1, len(alike))) + 1):
        same = np.zeros(len(alike) - period + 2, np.int8)
        same[1:-1] = alike[:-period] == alike[period:]
        edges = np.flatnonzero(np.diff(same))
        if not len(edges):
            continue
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        longest = int(lengths.argmax())
        found = (int(lengths[longest]) + period, -period, -int(starts[longest]))
        if lengths[longest] >= (_LEAST_PERIODS - 1) * period and (best is None or found > best):
            best = found
    return None if best is None else Stretch(-best[2], -best[2] + best[0], -best[1])


def _alike(program: Program, before: Place) -> Ints:
    """Return, per place, a number that is the same for ops that are alike."""
    graph = program.problem.graph
    sizes: list[int] = graph.sizes.tolist()
    reads: list[list[int]] = list(graph.reads)
    writes: list[list[int]] = list(graph.writes)
    ops: list[int] = program.order[:before].tolist()
    numbers: dict[tuple[str, tuple[int, ...], tuple[int, ...]], int] = {}
    found: list[int] = []
    for op in ops:
        read, written = (tuple(sizes[buffer] for buffer in row[op]) for row in (reads, writes))
        found.append(numbers.setdefault((graph.op_kinds[op], read, written), len(numbers)))
    return np.asarray(found, np.int32)
