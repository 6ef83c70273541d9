"""The mixed-integer program with a third choice: what is not held at a cut may come back from the host.

To the rows of `recompute.cut_model` it adds, per cut and buffer that may travel, a column "comes back after this cut
without running anything again", and per stage between cuts a column for the seconds that compute stands still. The
rows are those that every real schedule satisfies:

- What comes back after a cut, where it is not held, has left completely before that cut. Everything produced from a
  place on that has left before a cut shared one lane, between the end of that place and the start of the cut.
- What is not resident at a cut and comes back before a base op needs it is copied between that cut and that op.
- The seconds between two places of the base order are those of the base ops between them, of what runs again there
  (columns, for stages with columns) and of anything else, which is priced like standing still.

Memory between cuts, the bytes of copies under way and repeated runs within one stage are left out: a relaxation.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.offload.host_space import Link
from lowtide.offload.travelers import may_travel
from lowtide.recompute.cut_model import BuiltModel, CutModel, ModelBuilder
from lowtide.recompute.program import Program

_MOST_WINDOWS = 16
_SLACK = 1e-7


class JointModel:
    """Builds the program of one base order and host for any cuts and budget."""

    def __init__(self, program: Program, link: Link, seconds: NDArray[np.float64]) -> None:
        self.program, self.link = program, link
        self.capacity = program.problem.graph.spaces[link.host].capacity_bytes
        self.cuts = CutModel(program)
        self.travels: list[bool] = may_travel(program).tolist()
        self.starts: list[float] = np.concatenate([[0.0], np.cumsum(seconds[program.order])]).tolist()
        """When the op at every place starts if nothing else takes time, then the end."""
        uses: list[list[int]] = [[] for _ in self.travels]
        for place, op in enumerate(self.cuts.order):
            for buffer in self.cuts.touches[op]:
                uses[buffer].append(place)
        for buffer in self.cuts.outputs:
            uses[buffer].append(len(self.cuts.order))
        self.uses = uses

    def choose(self, places: Sequence[int], budget_bytes: int, share: float) -> "tuple[BuiltModel, LaneBuilder]":
        """Return the program with memory rows at the given places, lanes as fast as a share of their bandwidth; with
        1.0 its optimum bounds the slow-down of every plan."""
        builder = LaneBuilder(self, places, budget_bytes, share)
        return builder.build(), builder


class LaneBuilder(ModelBuilder):
    """Adds lanes to the program."""

    def __init__(self, joint: JointModel, places: Sequence[int], budget: int, share: float) -> None:
        super().__init__(joint.cuts, places, budget, {})
        self.joint = joint
        self.per_byte_out = 1 / (share * joint.link.out_bytes_per_s)
        self.per_byte_back = 1 / (share * joint.link.back_bytes_per_s)
        self.loads: list[dict[int, int]] = []
        """Per cut, buffer -> column: comes back from the host after it."""

    def chosen(self, solution: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which buffers a solution sends to the host, as a mask."""
        travels = np.zeros(len(self.joint.travels), np.bool_)
        for columns in self.loads:
            for buffer, column in columns.items():
                travels[buffer] |= solution[column] > 0.5
        return travels

    def add_columns(self, cut: int, wanted: tuple[list[int], list[int]]) -> None:
        """Add the columns of recomputation, then one per buffer that may come back."""
        super().add_columns(cut, wanted)
        self.loads.append({b: self.column(0.0) for b in wanted[1] if self.joint.travels[b] and b in self.kept[cut]})

    def other_supply(self, cut: int, buffer: int) -> Sequence[int]:
        """Return the column for coming back from the host."""
        column = self.loads[cut].get(buffer)
        return () if column is None else (column,)

    def finish(self) -> None:
        """Add the lanes and what the host holds."""
        sizes = self.model.sizes
        buffers = sorted({buffer for columns in self.loads for buffer in columns})
        capacity = self.joint.capacity
        if capacity is not None:
            unit = float(max(1, capacity))
            for columns in self.loads:
                on_host = [(column, sizes[buffer] / unit) for buffer, column in columns.items()]
                self.rows.add(on_host, -np.inf, capacity / unit + _SLACK)
        per_byte = self.per_byte_out + self.per_byte_back
        self.longest = per_byte * len(self.places) * sum(sizes[buffer] for buffer in buffers)
        if self.longest > 0:
            self.stalls = [self._continuous(self.longest) for _ in range(len(self.places) + 1)]
            self._add_way_out(buffers)
            self._add_way_back()

    def _continuous(self, cost: float) -> int:
        column = self.column(cost)
        self.continuous.append(column)
        return column

    def _add_way_out(self, buffers: Sequence[int]) -> None:
        """What comes back has left before; what leaves before a cut shares the lane up to there."""
        first = self.model.first
        leaves: list[dict[int, int]] = []
        for cut, place in enumerate(self.places):
            later = {buffer for columns in self.loads[cut:] for buffer in columns}
            leaves.append({b: self._continuous(0.0) for b in buffers if b in later and first[b] < place})
        for cut, columns in enumerate(self.loads):
            for buffer, column in columns.items():
                left = [(leaves[before][buffer], 1.0) for before in range(cut + 1) if buffer in leaves[before]]
                self.rows.add([*left, (column, -1.0)], 0.0, np.inf)
        for cut, place in enumerate(self.places):
            left = [(first[b], b, column) for before in leaves[: cut + 1] for b, column in before.items()]
            for earliest in _windows([(made, self.model.sizes[b]) for made, b, _ in left], latest_first=True):
                copies = [(column, b) for made, b, column in left if made >= earliest]
                self._add_lane(copies, self.per_byte_out, earliest + 1, place)

    def _add_way_back(self) -> None:
        """What comes back after a cut is there before the next base op that needs it."""
        uses = self.joint.uses
        for cut, place in enumerate(self.places):
            back: list[tuple[int, int, int]] = []
            for later in range(cut, len(self.places)):
                for buffer, column in self.loads[later].items():
                    use = bisect_right(uses[buffer], self.places[later])
                    if use < len(uses[buffer]):
                        back.append((uses[buffer][use], buffer, column))
            for latest in _windows([(use, self.model.sizes[b]) for use, b, _ in back], latest_first=False):
                copies = [(column, b) for use, b, column in back if use <= latest]
                self._add_lane(copies, self.per_byte_back, place + 1, latest)

    def _add_lane(self, copies: Iterable[tuple[int, int]], per_byte: float, start: int, end: int) -> None:
        """Add a row: copies take no longer than what happens from the end of the op before a place to the start of the
        op at another."""
        starts = self.joint.starts
        unit = max(starts[-1], self.longest)
        terms = [(column, per_byte * self.model.sizes[buffer] / unit) for column, buffer in copies]
        for stage in range(bisect_left(self.places, start), bisect_left(self.places, end) + 1):
            terms.append((self.stalls[stage], -self.longest / unit))
            if stage:
                terms += [(column, -self.cost[column] / unit) for column in self.rerun[stage - 1].values()]
        self.rows.add(terms, -np.inf, max(0.0, starts[end] - starts[start]) / unit + _SLACK)


def _windows(copies: Sequence[tuple[int, int]], *, latest_first: bool) -> list[int]:
    """Return the places where windows end, given a place and bytes per copy: at every so many bytes, and at the end."""
    total = sum(size for _, size in copies)
    places: list[int] = []
    passed = 0
    ordered = sorted(copies, reverse=latest_first)
    for position, (place, size) in enumerate(ordered):
        passed += size
        is_last = position + 1 == len(ordered)
        if is_last or (ordered[position + 1][0] != place and passed * _MOST_WINDOWS >= total * (len(places) + 1)):
            places.append(place)
    return places
