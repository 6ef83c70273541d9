"""The mixed-integer program with a third choice: what is not kept at a counted place may be prefetched from the host.

To the rows of `recompute.place_model` it adds, per counted place and offloadable buffer, a column "is prefetched after
this place, and nothing runs again for it", and per stage between counted places a column for the seconds that compute
stands still. The rows are those that every real schedule satisfies:

- What is prefetched after a place, where it is not kept, has been copied out completely before that place. All that is
  made from some op on, and copied out before a place, shares one stream from the end of that op to that place.
- What is not resident at a place and is prefetched before a base op needs it is copied between that place and that op.
- The seconds between two places of the base order are those of the base ops between them, of what runs again there
  (columns, for stages with columns) and of anything else, which is priced like standing still.

Memory between counted places, the bytes of copies under way and repeated runs within one stage are copied out: a
relaxation.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.offload.host_space import Link
from lowtide.engine.offload.offloadable import offloadable_buffers
from lowtide.engine.recompute.place_model import BuiltModel, ModelBuilder, PlaceModel
from lowtide.engine.recompute.program import Program

_MOST_WINDOWS = 16
_SLACK = 1e-7


class JointModel:
    """Builds the program of one base order and host for any counted places and budget."""

    def __init__(self, program: Program, link: Link, seconds: NDArray[np.float64]) -> None:
        self.program, self.link = program, link
        self.capacity = program.problem.graph.spaces[link.host].capacity_bytes
        self.model = PlaceModel(program)
        self.offloadable: list[bool] = offloadable_buffers(program).tolist()
        self.starts: list[float] = np.concatenate([[0.0], np.cumsum(seconds[program.order])]).tolist()
        """When the op at every place starts if nothing else takes time, then the end."""
        uses: list[list[Place]] = [[] for _ in self.offloadable]
        for place, op in enumerate(self.model.order):
            for buffer in self.model.touches[op]:
                uses[buffer].append(place)
        for buffer in self.model.outputs:
            uses[buffer].append(len(self.model.order))
        self.uses = uses

    def choose(
        self, places: Sequence[Place], budget_bytes: int, share: float
    ) -> "tuple[BuiltModel, JointModelBuilder]":
        """Return the program with memory rows at the given places, and its builder, which knows what a solution means.

        Streams are as fast as a share of their bandwidth; with 1.0 the optimum bounds the slow-down of every plan.
        """
        builder = JointModelBuilder(self, places, budget_bytes, share)
        return builder.build(), builder


class JointModelBuilder(ModelBuilder):
    """Adds streams and what the host holds to the program."""

    def __init__(self, joint: JointModel, places: Sequence[Place], budget: int, share: float) -> None:
        super().__init__(joint.model, places, budget, {})
        self.joint = joint
        self.per_byte_out = 1 / (share * joint.link.out_bytes_per_s)
        self.per_byte_back = 1 / (share * joint.link.back_bytes_per_s)
        self.prefetches: list[dict[BufferId, int]] = []
        """Per counted place, buffer -> column: prefetched after it."""

    def chosen(self, solution: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return a mask over buffers: what a solution offloads."""
        offloaded = np.zeros(len(self.joint.offloadable), np.bool_)
        for columns in self.prefetches:
            for buffer, column in columns.items():
                offloaded[buffer] |= solution[column] > 0.5
        return offloaded

    def add_columns(self, number: int, wanted: tuple[list[OpId], list[BufferId]]) -> None:
        """Add the columns of recomputation, then one per buffer that may be prefetched."""
        super().add_columns(number, wanted)
        self.prefetches.append(
            {b: self.column(0.0) for b in wanted[1] if self.joint.offloadable[b] and b in self.kept[number]}
        )

    def other_supply(self, number: int, buffer: BufferId) -> Sequence[int]:
        """Return the column for a prefetch."""
        column = self.prefetches[number].get(buffer)
        return () if column is None else (column,)

    def finish(self) -> None:
        """Add the streams and what the host holds."""
        sizes = self.model.sizes
        buffers = sorted({buffer for columns in self.prefetches for buffer in columns})
        capacity = self.joint.capacity
        if capacity is not None:
            unit = float(max(1, capacity))
            for columns in self.prefetches:
                on_host = [(column, sizes[buffer] / unit) for buffer, column in columns.items()]
                self.rows.add(on_host, -np.inf, capacity / unit + _SLACK)
        per_byte = self.per_byte_out + self.per_byte_back
        self.longest = per_byte * len(self.places) * sum(sizes[buffer] for buffer in buffers)
        if self.longest > 0:
            self.stalls = [self._continuous(self.longest) for _ in range(len(self.places) + 1)]
            self._add_copies_out(buffers)
            self._add_prefetches()

    def _continuous(self, cost: float) -> int:
        column = self.column(cost)
        self.continuous.append(column)
        return column

    def _add_copies_out(self, buffers: Sequence[BufferId]) -> None:
        """What is prefetched was copied out before; what is copied out before a place shares the stream up to there."""
        first = self.model.first
        copied_out: list[dict[BufferId, int]] = []
        for number, place in enumerate(self.places):
            later = {buffer for columns in self.prefetches[number:] for buffer in columns}
            copied_out.append({b: self._continuous(0.0) for b in buffers if b in later and first[b] < place})
        for number, columns in enumerate(self.prefetches):
            for buffer, column in columns.items():
                copied = [
                    (copied_out[before][buffer], 1.0) for before in range(number + 1) if buffer in copied_out[before]
                ]
                self.rows.add([*copied, (column, -1.0)], 0.0, np.inf)
        for number, place in enumerate(self.places):
            copied = [(first[b], b, column) for before in copied_out[: number + 1] for b, column in before.items()]
            for earliest in _windows([(made, self.model.sizes[b]) for made, b, _ in copied], latest_first=True):
                copies = [(column, b) for made, b, column in copied if made >= earliest]
                self._add_stream_row(copies, self.per_byte_out, earliest + 1, place)

    def _add_prefetches(self) -> None:
        """What is prefetched after a place is there before the next base op that needs it."""
        uses = self.joint.uses
        for number, place in enumerate(self.places):
            back: list[tuple[Place, BufferId, int]] = []
            for later in range(number, len(self.places)):
                for buffer, column in self.prefetches[later].items():
                    use = bisect_right(uses[buffer], self.places[later])
                    if use < len(uses[buffer]):
                        back.append((uses[buffer][use], buffer, column))
            for latest in _windows([(use, self.model.sizes[b]) for use, b, _ in back], latest_first=False):
                copies = [(column, b) for use, b, column in back if use <= latest]
                self._add_stream_row(copies, self.per_byte_back, place + 1, latest)

    def _add_stream_row(
        self, copies: Iterable[tuple[int, BufferId]], per_byte: float, start: Place, end: Place
    ) -> None:
        """Add a row: copies take no longer than what happens between the ops at two places.

        That is from the end of the op before `start` to the start of the op at `end`.
        """
        starts = self.joint.starts
        unit = max(starts[-1], self.longest)
        terms = [(column, per_byte * self.model.sizes[buffer] / unit) for column, buffer in copies]
        for stage in range(bisect_left(self.places, start), bisect_left(self.places, end) + 1):
            terms.append((self.stalls[stage], -self.longest / unit))
            if stage:
                terms += [(column, -self.cost[column] / unit) for column in self.rerun[stage - 1].values()]
        self.rows.add(terms, -np.inf, max(0.0, starts[end] - starts[start]) / unit + _SLACK)


def _windows(copies: Sequence[tuple[Place, int]], *, latest_first: bool) -> list[Place]:
    """Return the places where windows end, given a place and bytes per copy: at every so many bytes, and at the end."""
    total = sum(size for _, size in copies)
    places: list[Place] = []
    passed = 0
    ordered = sorted(copies, reverse=latest_first)
    for position, (place, size) in enumerate(ordered):
        passed += size
        is_last = position + 1 == len(ordered)
        if is_last or (ordered[position + 1][0] != place and passed * _MOST_WINDOWS >= total * (len(places) + 1)):
            places.append(place)
    return places
