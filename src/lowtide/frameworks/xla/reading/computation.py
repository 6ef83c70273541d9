"""Read a computation into a graph."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.xla.points_to.buffers import PointsTo
from lowtide.frameworks.xla.points_to.overwriting import Overwriting
from lowtide.frameworks.xla.points_to.storage import StorageMap
from lowtide.frameworks.xla.reading.callgraph import Callers, Way, scheduled_callees
from lowtide.frameworks.xla.reading.ops import Effects, OtherDependences, combined, effects_of, is_op
from lowtide.frameworks.xla.text.module import Instruction
from lowtide.frameworks.xla.text.shape import memory_space, own_bytes


@dataclass(frozen=True, kw_only=True)
class ReadComputation:
    points: PointsTo
    storage: StorageMap
    graph: Graph
    places: list[int]
    buffers: Mapping[int, BufferId]
    effects: Effects
    handed_over: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class ParameterLives:
    donated: frozenset[int] = frozenset()
    handed_over: Mapping[int, int] = field(default_factory=dict[int, int])


class ComputationReader:
    """Reads one computation after its callees."""

    def __init__(
        self,
        points: PointsTo,
        storage: StorageMap,
        overwriting: Overwriting,
        callees: Mapping[str, ReadComputation],
        callers: Callers | None,
        pointer_bytes: int,
    ) -> None:
        """`callers` is None for the entry."""
        self._points, self._storage, self._overwriting = points, storage, overwriting
        self._callees, self._callers, self._pointer_bytes = callees, callers, pointer_bytes
        self._computation = points.computation
        self._instructions = points.computation.instructions
        self._members: dict[int, list[int]] = {}
        for buffer, named in enumerate(storage.of):
            if named is not None:
                self._members.setdefault(named, []).append(buffer)
        self._defined: dict[int, list[int]] = {}
        for buffer, logical in enumerate(points.buffers):
            named = storage.of[buffer]
            if named is not None and buffer not in storage.parameters:
                self._defined.setdefault(logical.definer, []).append(named)
        self._results = frozenset(points.result)
        self._buffers: dict[int, BufferId] = {}

    def read(self, name: str, spaces: Sequence[int], lives: ParameterLives, notes: Sequence[str]) -> ReadComputation:
        """Return the graph in memory spaces with these numbers, first 0."""
        builder = GraphBuilder(name)
        for number in spaces:
            builder.add_space(space_name(number))
        existing = self._add_buffers(builder, spaces, lives)
        called_names = [callee for instruction in self._instructions for callee in scheduled_callees(instruction)]
        for callee in dict.fromkeys(called_names):
            builder.add_subgraph(callee, self._callees[callee].graph)
        places: list[int] = []
        effects: dict[str, Effects] = {}
        others = OtherDependences(self._computation)
        readers = {old: list[int]() for old in lives.handed_over}
        handed = {new: old for old, new in lives.handed_over.items()}
        last = self._last_op()
        for place, instruction in enumerate(self._instructions):
            if not is_op(instruction):
                others.add(place, None, ())
                continue
            called = scheduled_callees(instruction)
            own = effects_of(instruction, {name: self._callees[name].effects for name in called})
            effects[instruction.name] = own
            reads = self._points.reads[place]
            defined = dict.fromkeys(self._defined.get(place, ()))
            written = [storage for storage in defined if storage not in existing]
            existing.update(written)
            after = others.add(place, len(places), {self._points.buffers[buffer].definer for buffer in reads})
            after += [reader for storage in written if storage in handed for reader in readers[handed[storage]]]
            for buffer in reads:
                named = self._storage.of[buffer]
                if named in readers:
                    readers[named].append(len(places))
            builder.add_op(
                instruction.name,
                instruction.opcode,
                reads=self._ids(self._storage.of[buffer] for buffer in reads),
                writes=self._ids(written),
                mutates=self._ids(storage for storage in defined if storage not in written),
                after=sorted(set(after)),
                in_place=self._pairs(place, written),
                scratch_bytes=self._storage.swapped_bytes if place == last else 0,
                pure=own.pure,
                ordered=own.ordered,
                callees=called,
            )
            places.append(place)
        for note in notes:
            builder.note(note)
        return ReadComputation(
            points=self._points,
            storage=self._storage,
            graph=builder.build(),
            places=places,
            buffers=self._buffers,
            effects=combined(effects),
            handed_over=lives.handed_over,
        )

    def _add_buffers(self, builder: GraphBuilder, spaces: Sequence[int], lives: ParameterLives) -> set[int]:
        existing: set[int] = set()
        for storage, members in self._members.items():
            logical = self._points.buffers[storage]
            definer = self._instructions[logical.definer]
            lifetime, index = self._lifetime(members, lives), definer.shape.indices[logical.part]
            if lifetime.exists_at_start:
                existing.add(storage)
            self._buffers[storage] = builder.add_buffer(
                definer.name + (f"[{','.join(map(str, index))}]" if index else ""),
                own_bytes(logical.shape, self._pointer_bytes),
                lifetime,
                space=spaces.index(memory_space(logical.shape)),
            )
        self._add_copied_results(builder, spaces)
        return existing

    def _add_copied_results(self, builder: GraphBuilder, spaces: Sequence[int]) -> None:
        ways = set[Way]() if self._callers is None else self._callers.ways
        if ways.isdisjoint(("call", "branch")):
            return
        seen: set[int] = set()
        for part, (buffer, shape) in enumerate(zip(self._points.result, self._root.shape.parts, strict=True)):
            is_operand = buffer in self._storage.parameters
            if (self._storage.of[buffer] is None or buffer in seen or is_operand) and (
                "branch" in ways or not is_operand
            ):
                size = own_bytes(shape, self._pointer_bytes)
                builder.add_buffer(f"result {part}", size, Lifetime.INPUT, space=spaces.index(memory_space(shape)))
            seen.add(buffer)

    def _lifetime(self, members: Sequence[int], lives: ParameterLives) -> Lifetime:
        is_result = any(buffer in self._results for buffer in members)
        given = [buffer for buffer in members if buffer in self._storage.parameters]
        if not given:
            inner = self._callers is not None and "asynchronous" in self._callers.ways
            return (Lifetime.PERSISTENT if inner else Lifetime.OUTPUT) if is_result else Lifetime.INTERMEDIATE
        if lives.donated.issuperset(given) and not is_result:
            return Lifetime.DONATED
        if self._callers is None:
            return Lifetime.INPUT
        if self._callers.only_called:
            changed = is_result and len(members) > len(given)  # the caller counts the result
        else:
            parts = {self._storage.parameters[buffer][1] for buffer in given}
            changed = self._callers.in_loop and not parts.isdisjoint(self._callers.changed_parts)
        return Lifetime.INPUT if changed else Lifetime.PERSISTENT

    def _pairs(self, place: int, written: Sequence[int]) -> list[tuple[BufferId, BufferId]]:
        instruction, positions = self._instructions[place], self._computation.positions
        if not written:
            return []
        found: dict[tuple[BufferId, BufferId], None] = {}
        refused: set[tuple[BufferId, BufferId]] = set()
        new = [(part, buffer) for part, buffer in enumerate(self._points.parts[place]) if buffer in written]
        for operand, name in enumerate(instruction.operands):
            for old in self._points.parts[positions[name]]:
                storage = self._storage.of[old]
                if storage is None:
                    continue
                for part, buffer in new:
                    pair = self._buffers[storage], self._buffers[buffer]
                    if self._overwriting.may_overwrite(instruction, operand, self._points.buffers[old].shape, part):
                        found[pair] = None
                    else:
                        refused.add(pair)
        return [pair for pair in found if pair not in refused]

    @property
    def _root(self) -> Instruction:
        return self._instructions[self._computation.root]

    def _last_op(self) -> int:
        return max((place for place, instruction in enumerate(self._instructions) if is_op(instruction)), default=-1)

    def _ids(self, storages: Iterable[int | None]) -> list[BufferId]:
        return list(dict.fromkeys(self._buffers[storage] for storage in storages if storage is not None))


def space_name(number: int) -> str:
    return f"S({number})" if number else "device"
