"""The conditions that every plan with recomputation and copies to the host meets at one counted place.

These add to `plain_reruns` the seconds of a stream of copies in each direction. Columns:

- ("back", 0, buffer): 0 or 1; the buffer is not resident at the place and is copied back after it
- ("out", 0, buffer): from 0 to 1; at least 1 if it is copied back, because it was copied out before the place
- ("stall", stage): seconds that compute waits before the run at the place (0) and after its start (1)
"""

from bisect import bisect_right
from fractions import Fraction
from functools import cached_property

import numpy as np

from lowtide.core.index_spaces import BufferId, Place, SpaceId
from lowtide.engine.search.check_cases import ExactColumn, ExactRow
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.plain_reruns import PlainReruns, refuse_negative
from lowtide.engine.search.proof_of_cost import CostProof, Name


class PlainCopies(PlainReruns):
    """The integer program with copies; costs are seconds."""

    def __init__(self, program: PlainProgram, proof: CostProof) -> None:
        super().__init__(program, proof)
        self._seconds = proof.seconds
        (self._place,) = proof.places

    @cached_property
    def _link(self) -> tuple[SpaceId, Fraction, Fraction]:
        spaces = self.program.graph.spaces
        for number, other in enumerate(spaces[1:], 1):
            out = spaces[0].bandwidth_bytes_per_s.get(other.name, 0.0)
            back = other.bandwidth_bytes_per_s.get(spaces[0].name, 0.0)
            if out > 0 and back > 0:
                return number, 1 / Fraction(out), 1 / Fraction(back)
        raise KeyError("host")

    @cached_property
    def _may_copy(self) -> list[bool]:
        graph, program = self.program.graph, self.program
        changed = np.bincount(np.concatenate([graph.writes.values, graph.mutates.values]), minlength=graph.n_buffers)
        once = ((graph.buffer_spaces == 0) & ~graph.exists_at_start & (changed == 1)).tolist()
        allowed = [False] * graph.n_buffers
        for op, results in enumerate(program.allocates):
            if self.may_run_twice[op] and graph.scratch_spaces[op] == 0 and all(once[buffer] for buffer in results):
                for buffer in results:
                    allowed[buffer] = bool(graph.sizes[buffer] > 0)
        return allowed

    @cached_property
    def _copied(self) -> list[BufferId]:
        return [b for b, allowed in enumerate(self._may_copy) if allowed and self.is_kept(0, b)]

    @cached_property
    def _starts(self) -> list[Fraction]:
        starts = [Fraction(0)]
        for op in self.order:
            starts.append(starts[-1] + Fraction(self._seconds[op]))
        return starts

    def column(self, name: Name) -> ExactColumn:
        """Return a column; KeyError if no plan makes it positive or it does not exist."""
        refuse_negative(name)
        match name:
            case ("back", 0, int(buffer)) if buffer in self._copied:
                return ExactColumn(0, 0, 1)
            case ("out", 0, int(buffer)) if buffer in self._copied:
                return ExactColumn(0, 0, 1, is_integer=False)
            case ("stall", 0 | 1):
                _, out, back = self._link
                most = (out + back) * sum(self.program.sizes[buffer] for buffer in self._copied)
                return ExactColumn(1, 0, most, is_integer=False)
            case _:
                return super().column(name)

    def _other_sources(self, k: int, buffer: BufferId) -> list[Name]:
        return [("back", k, buffer)] if self._may_copy[buffer] and self.is_kept(k, buffer) else []

    def row(self, name: Name) -> ExactRow:
        """Return a row that every plan satisfies; KeyError if there is no such row.

        - ("copied", 0, buffer): a buffer that is copied back was copied out
        - ("host", 0): the copies at the place fit on the host
        - ("out until", earliest): buffers made at this place or later are copied out before the counted place
        - ("back until", latest): buffers used until this place are copied back after the counted place
        """
        refuse_negative(name)
        match name:
            case ("copied", 0, int(buffer)) if buffer in self._copied:
                return ExactRow({("out", 0, buffer): 1, ("back", 0, buffer): -1}, 0, None)
            case ("host", 0):
                capacity = self.program.graph.spaces[self._link[0]].capacity_bytes
                if capacity is None:
                    raise KeyError(name)
                return ExactRow({("back", 0, b): self.program.sizes[b] for b in self._copied}, None, capacity)
            case ("out until", int(earliest)) if earliest < self._place:
                per_byte, starts = self._link[1], self._starts
                terms: dict[Name, int | Fraction] = {
                    ("out", 0, b): per_byte * self.program.sizes[b] for b in self._copied if self.first(b) >= earliest
                }
                terms["stall", 0] = -1
                return ExactRow(terms, None, starts[self._place] - starts[earliest + 1])
            case ("back until", int(latest)) if self._place < latest <= len(self.order):
                return self._back_until(latest)
            case _:
                return super().row(name)

    def _back_until(self, latest: Place) -> ExactRow:
        per_byte, starts = self._link[2], self._starts
        terms: dict[Name, int | Fraction] = {("stall", 1): -1}
        for buffer in self._copied:
            uses = sorted(self.uses[buffer])
            following = bisect_right(uses, self._place)
            if following < len(uses) and uses[following] <= latest:
                terms["back", 0, buffer] = per_byte * self.program.sizes[buffer]
        for op in range(self.program.n_ops):
            if self.may_rerun(op, self._place):
                terms["rerun", 0, op] = -Fraction(self.costs[op])
        return ExactRow(terms, None, starts[latest] - starts[self._place + 1])
