"""Residencies as rectangles of runs and addresses."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.analysis.memory_over_time import roles_of
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Addresses, Plan, StepKind

MOST_DRAWN = 12_000
"""Most rectangles drawn singly, with a name."""
_COLUMNS, _ROWS = 512, 256


@dataclass(frozen=True, slots=True, eq=False)
class Rectangles:
    """Residencies of one memory space; ranges of runs are half-open."""

    buffers: NDArray[np.int64]
    first_runs: NDArray[np.int64]
    last_runs: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    drawn: NDArray[np.intp]
    """Rows drawn singly: the most bytes times runs, by first run."""

    @property
    def n_shaded(self) -> int:
        return len(self.buffers) - len(self.drawn)

    @classmethod
    def of(cls, graph: Graph, plan: Plan, space: SpaceId) -> "Rectangles":
        """Return a plan's rectangles, without those of no bytes or no run. O(n log n)."""
        table = Addresses.of(plan.addresses).table
        table = table[table[:, 3] == space]
        runs = np.flatnonzero(plan.kinds == StepKind.RUN)
        first, last = np.searchsorted(runs, table[:, 1]), np.searchsorted(runs, table[:, 2])
        shown = (last > first) & (graph.sizes[table[:, 0]] > 0)
        table, first, last = table[shown], first[shown], last[shown]
        sizes = graph.sizes[table[:, 0]]
        area = sizes.astype(np.float64) * (last - first)
        drawn = np.sort(np.argsort(-area, kind="stable")[:MOST_DRAWN])
        return cls(table[:, 0], first, last, table[:, 4], sizes, drawn)

    def to_json(self, graph: Graph, n_runs: int, arena_bytes: int) -> dict[str, Any]:
        """Return the columns of the drawn rectangles, and the shade of the rest."""
        rows, buffers = self.drawn, self.buffers[self.drawn].tolist()
        producers = graph.structure.producers[self.buffers[rows]].tolist()
        roles = roles_of(graph)[self.buffers[rows]]
        area = self.sizes.astype(np.float64) * (self.last_runs - self.first_runs)
        return {
            "first": self.first_runs[rows].tolist(),
            "last": self.last_runs[rows].tolist(),
            "offset": self.offsets[rows].tolist(),
            "size": self.sizes[rows].tolist(),
            "role": roles.tolist(),
            "name": [graph.buffer_names[buffer] for buffer in buffers],
            "op": ["" if op < 0 else graph.op_names[op] for op in producers],
            "shaded": self.n_shaded,
            "drawn_share": float(area[rows].sum() / area.sum()) if len(area) else 1.0,
            "shade": self._shade(n_runs, arena_bytes) if self.n_shaded else None,
        }

    def _shade(self, n_runs: int, arena_bytes: int) -> dict[str, Any]:
        """Return touched grid cells row by row as (start, length) pairs."""
        rest = np.ones(len(self.buffers), np.bool_)
        rest[self.drawn] = False
        across, up = max(n_runs, 1) / _COLUMNS, max(arena_bytes, 1) / _ROWS
        left = (self.first_runs[rest] / across).astype(np.int64)
        right = np.minimum(np.ceil(self.last_runs[rest] / across).astype(np.int64), _COLUMNS)
        low = np.minimum((self.offsets[rest] / up).astype(np.int64), _ROWS - 1)
        high = np.clip(np.ceil((self.offsets[rest] + self.sizes[rest]) / up).astype(np.int64), low + 1, _ROWS)
        grid = np.zeros((_ROWS + 1, _COLUMNS + 1), np.int64)
        for row, column, sign in ((low, left, 1), (low, right, -1), (high, left, -1), (high, right, 1)):
            np.add.at(grid, (row, column), sign)
        covered = np.cumsum(np.cumsum(grid, axis=0), axis=1)[:_ROWS, :_COLUMNS] > 0
        edges = np.diff(covered.astype(np.int8), axis=1, prepend=0, append=0)
        starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
        return {
            "columns": _COLUMNS,
            "rows": _ROWS,
            "row": starts[:, 0].tolist(),
            "start": starts[:, 1].tolist(),
            "length": (ends[:, 1] - starts[:, 1]).tolist(),
        }
