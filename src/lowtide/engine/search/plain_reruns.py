"""The conditions that every plan with recomputation meets at counted places, in plain Python.

Stage k lasts from the first run at the counted place k to that at the next one, inclusive, or to the end. Columns are 0
or 1:

- ("kept", k, buffer): the buffer is resident during the first run at place k, whose op neither reads nor makes it
- ("rerun", k, op): the op is recomputed in stage k
- ("pair", k, read, written): the op at place k overwrites a buffer that dies with its result
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.graph import Lifetime
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.search.check_cases import ExactColumn, ExactRow
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.proof_of_cost import CostProof, Name


class PlainReruns:
    """The integer program of a base order, counted places and a budget."""

    counted = ()

    def __init__(self, program: PlainProgram, proof: CostProof) -> None:
        self.program, self.order, self.places = program, proof.order, proof.places
        self.budget, self.costs = proof.budget_bytes, proof.costs
        graph = program.graph
        self._place_of = {op: place for place, op in enumerate(proof.order)}
        twice: list[bool] = may_run_twice(graph).tolist()
        self._is_remade = [op >= 0 and twice[op] for op in program.producers]
        self.may_run_twice = twice

    def first(self, buffer: BufferId) -> Place:
        producer = self.program.producers[buffer]
        return self._place_of[producer] if producer >= 0 else -1

    @cached_property
    def uses(self) -> list[list[Place]]:
        program, end = self.program, len(self.order)
        uses = [[self._place_of[op] for op in users] for users in program.users]
        for buffer, lifetime in enumerate(program.lifetimes):
            if lifetime in (Lifetime.INPUT, Lifetime.OUTPUT):
                uses[buffer].append(end)
        return uses

    def _is_always_there(self, buffer: BufferId) -> bool:
        free = (Lifetime.PERSISTENT, Lifetime.INPUT)
        return self.program.graph.sizes[buffer] == 0 or self.program.lifetimes[buffer] in free

    def _is_pinned(self, buffer: BufferId, place: Place) -> bool:
        return not self._is_remade[buffer] and max(self.uses[buffer], default=-1) > place

    def _own(self, place: Place) -> set[BufferId]:
        op = self.order[place]
        return {*self.program.touches[op], *self.program.allocates[op]}

    def _pairs(self, place: Place) -> list[tuple[BufferId, BufferId]]:
        return [pair for pair in self.program.pairs[self.order[place]] if not self._is_pinned(pair[0], place)]

    def may_rerun(self, op: OpId, place: Place) -> bool:
        if not self.may_run_twice[op] or self._place_of[op] > place:
            return False
        reads: list[BufferId] = self.program.graph.reads[op].tolist()
        lost = [buffer for buffer in reads if not self._is_remade[buffer]]
        if any(self._place_of[op] < written <= place for buffer in lost for written in self._writes[buffer]):
            return False
        return self._needs_to_rerun(op) <= self.budget

    @cached_property
    def _writes(self) -> list[list[Place]]:
        graph = self.program.graph
        found: list[list[Place]] = [[] for _ in self.program.sizes]
        for rows in (graph.writes, graph.mutates):
            owners: list[OpId] = rows.owners().tolist()
            buffers: list[BufferId] = rows.values.tolist()
            for op, buffer in zip(owners, buffers, strict=True):
                found[buffer].append(self._place_of[op])
        return found

    @cached_property
    def _inputs(self) -> frozenset[BufferId]:
        return frozenset(b for b, lifetime in enumerate(self.program.lifetimes) if lifetime == Lifetime.INPUT)

    def _needs_to_rerun(self, op: OpId) -> int:
        program, sizes = self.program, self.program.sizes
        own = {*program.touches[op], *program.allocates[op]} - self._inputs
        spared = sum(sizes[buffer] for buffer in {written for _, written in program.pairs[op]})
        return self.program.bytes_of(Lifetime.INPUT) + sum(sizes[buffer] for buffer in own) - spared

    def column(self, name: Name) -> ExactColumn:
        """Return a column; KeyError if no plan makes it 1 or it does not exist."""
        refuse_negative(name)
        match name:
            case ("kept", int(k), int(buffer)) if self.is_kept(k, buffer):
                return ExactColumn(0, 0, 1)
            case ("rerun", int(k), int(op)) if self.may_rerun(op, self.places[k]):
                return ExactColumn(Fraction(self.costs[op]), 0, 1)
            case ("pair", int(k), int(read), int(written)) if (read, written) in self._pairs(self.places[k]):
                return ExactColumn(0, 0, 1)
            case _:
                raise KeyError(name)

    def is_kept(self, k: int, buffer: BufferId) -> bool:
        """Return whether a plan chooses to keep a buffer at a counted place."""
        place = self.places[k]
        return (
            self.first(buffer) <= place
            and not self._is_always_there(buffer)
            and buffer not in self._own(place)
            and not self._is_pinned(buffer, place)
        )

    def row(self, name: Name) -> ExactRow:
        """Return a row that every plan satisfies; KeyError if there is no such row.

        - ("used", k, buffer): an op in stage k, or the end, uses the buffer
        - ("read", k, op, buffer): the op reads the buffer if it is recomputed in stage k
        - ("kept", k, buffer): a buffer resident at place k was resident at the place before, or recomputed in between
        - ("paired once", k, side, buffer): a buffer is in one pair
        - ("room", k): memory during the first run at place k
        """
        refuse_negative(name)
        match name:
            case ("used", int(k), int(buffer)) if self._is_used(k, buffer):
                return self._available(k, buffer, None)
            case ("read", int(k), int(op), int(buffer)) if self.may_rerun(op, self.places[k]):
                if buffer in self.program.touches[op]:
                    return self._available(k, buffer, ("rerun", k, op))
            case ("kept", int(k), int(buffer)) if k > 0 and self.is_kept(k, buffer):
                if self.first(buffer) <= self.places[k - 1]:
                    return self._available(k - 1, buffer, ("kept", k, buffer))
            case ("paired once", int(k), (0 | 1) as side, int(buffer)):
                pairs = [pair for pair in self._pairs(self.places[k]) if pair[side] == buffer]
                return ExactRow({("pair", k, *pair): 1 for pair in pairs}, None, 1)
            case ("room", int(k)):
                return self._room(k)
            case _:
                pass
        raise KeyError(name)

    def _is_used(self, k: int, buffer: BufferId) -> bool:
        end = self.places[k + 1] if k + 1 < len(self.places) else len(self.order)
        return self.first(buffer) <= self.places[k] and any(self.places[k] < use <= end for use in self.uses[buffer])

    def _available(self, k: int, buffer: BufferId, if_one: Name | None) -> ExactRow:
        place, terms, least = self.places[k], dict[Name, int](), 1
        if if_one is not None:
            terms[if_one], least = -1, 0
        if self._is_always_there(buffer):
            least -= 1
        elif buffer in self._own(place):
            least -= 1
            for read, written in self._pairs(place):
                if read == buffer:
                    terms["pair", k, read, written] = -1
        elif self._is_pinned(buffer, place):
            least -= 1
        elif self.is_kept(k, buffer):
            terms["kept", k, buffer] = 1
        producer = self.program.producers[buffer]
        if producer >= 0 and self.may_rerun(producer, place):
            terms["rerun", k, producer] = 1
        terms.update((source, 1) for source in self._other_sources(k, buffer))
        return ExactRow(terms, least, None)

    def _other_sources(self, k: int, buffer: BufferId) -> Sequence[Name]:
        del k, buffer
        return ()

    def _room(self, k: int) -> ExactRow:
        place, program = self.places[k], self.program
        there = self._own(place)
        there.update(
            buffer
            for buffer in range(len(program.sizes))
            if self.first(buffer) < place
            and (program.producers[buffer] >= 0 or program.lifetimes[buffer] <= Lifetime.DONATED)
            and self._is_pinned(buffer, place)
        )
        resident = program.transient[self.order[place]] + sum(program.sizes[buffer] for buffer in there)
        terms: dict[Name, int] = {
            ("kept", k, buffer): size for buffer, size in enumerate(program.sizes) if size and self.is_kept(k, buffer)
        }
        savings = {("pair", k, read, written): -program.sizes[read] for read, written in self._pairs(place)}
        return ExactRow({**terms, **savings}, None, self.budget - resident)


def refuse_negative(name: Name) -> None:
    """Raise KeyError for indices that Python would count from the end."""
    if any(isinstance(index, int) and index < 0 for index in name):
        raise KeyError(name)
