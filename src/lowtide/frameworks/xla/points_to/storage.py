"""Which logical buffers lie in one place: loop states, aliases, whatever the program overwrites.

XLA decides the same with its alias analysis, and inserts copies first where a value would be overwritten too early.
Here, a buffer that is still needed when it would be overwritten keeps its storage, and the new one gets its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lowtide.frameworks.xla.opcodes import FREE, VIEWS
from lowtide.frameworks.xla.points_to.buffers import PointsTo
from lowtide.frameworks.xla.points_to.overwriting import Overwriting
from lowtide.frameworks.xla.sizes import memory_space, own_bytes

_BEFORE = -1


class _Life(NamedTuple):
    """A logical buffer from the instruction that defines it to the last one that needs it."""

    first: int
    last: int
    buffer: int


@dataclass(frozen=True, slots=True)
class StorageMap:
    """Where the logical buffers of a computation lie."""

    of: list[int | None]
    """Per logical buffer, the one that names its storage: the first that lies there. None for constants."""
    parameters: Mapping[int, tuple[int, int]]
    """Per logical buffer of a parameter, the parameter's number and its part."""
    swapped_bytes: int
    """What a loop's body needs at its end to pass its state on in another order."""

    def returned_in(self, points: PointsTo) -> dict[int, int]:
        """Return which buffers of the result lie where another one, of a parameter, lay."""
        found = {buffer: self.of[buffer] for buffer in points.result}
        return {new: old for new, old in found.items() if old is not None and old != new and old in self.parameters}


def storage_of(
    points: PointsTo,
    overwriting: Overwriting,
    *,
    state: Sequence[tuple[int, int]] = (),
    given: Iterable[int] = (),
) -> StorageMap:
    """Find which logical buffers lie in one place. O(n + parts log parts).

    `state` are pairs of a parameter's buffer and one of the result that shall lie there in the end: the state of a
    loop, or what an entry returns in the storage of its parameters. They are one where the instruction that makes the
    second overwrites the first; where time passes in between, the storage is free for others (`handed_over`). `given`
    are buffers of parameters that may be overwritten, too; all others are the caller's.
    """
    lives, parameters, constants = _lives(points)
    held = parameters.keys() - {old for old, _ in state} - set(given)
    last = {life.buffer: life.last for life in lives}
    groups = {life.buffer: [life] for life in lives if life.buffer not in constants}
    of: list[int | None] = [None if life.buffer in constants else life.buffer for life in lives]

    def merge(old: int, new: int) -> None:
        one, other = of[old], of[new]
        if one is None or other is None or one == other:
            return
        merged = sorted(groups[one] + groups[other], key=lambda life: (life.first, life.last))
        if _fit(points, overwriting, merged, held):
            first = merged[0].buffer
            for life in merged:
                of[life.buffer] = first
            groups[first] = merged

    for old, new in points.shared:
        merge(old, new)
    for old, new in state:
        if last[old] == points.buffers[new].definer:
            merge(old, new)
    return StorageMap(of, parameters, _swapped(points, state, parameters))


def storage_of_callee(points: PointsTo, overwriting: Overwriting) -> StorageMap:
    """Find the storage of a computation that is called, which may return its results where its operands lie.

    It overwrites no other operand: whoever calls it could not tell.
    """
    parameters = {buffer for parts in points.parameter_parts().values() for buffer in parts}
    free = storage_of(points, overwriting, given=parameters)
    returned = {free.of[buffer] for buffer in points.result}
    return storage_of(points, overwriting, given=[buffer for buffer in parameters if free.of[buffer] in returned])


def handed_over(points: PointsTo, storage: StorageMap, state: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return which storage of a parameter becomes which of a result, where nothing needs the first any more by then.

    `state` is that of `storage_of`. The storage may hold other buffers in between.
    """
    lives, _, _ = _lives(points)
    last: dict[int, int] = {}
    for life in lives:
        named = storage.of[life.buffer]
        if named is not None:
            last[named] = max(last.get(named, _BEFORE), life.last)
    found: dict[int, int] = {}
    for old, new in state:
        one, other = storage.of[old], storage.of[new]
        if one is None or other is None or one == other or other in storage.parameters or other in found.values():
            continue
        same_size = own_bytes(points.buffers[old].shape) == own_bytes(points.buffers[new].shape)
        if same_size and last[one] < points.buffers[other].definer:
            found[one] = other
    return found


def _lives(points: PointsTo) -> tuple[list[_Life], dict[int, tuple[int, int]], set[int]]:
    instructions = points.computation.instructions
    last = [buffer.definer for buffer in points.buffers]
    for place, instruction in enumerate(instructions):
        if instruction.opcode not in FREE and instruction.opcode not in VIEWS:
            for buffer in points.reads[place]:
                last[buffer] = place
    for buffer in points.result:
        last[buffer] = len(instructions)
    constants = {
        number for number, buffer in enumerate(points.buffers) if instructions[buffer.definer].opcode == "constant"
    }
    parameters = {
        buffer: (number, part)
        for number, parts in points.parameter_parts().items()
        for part, buffer in enumerate(parts)
    }
    lives = [
        _Life(_BEFORE if number in parameters else buffer.definer, last[number], number)
        for number, buffer in enumerate(points.buffers)
    ]
    return lives, parameters, constants


def _fit(points: PointsTo, overwriting: Overwriting, lives: list[_Life], held: AbstractSet[int]) -> bool:
    """Whether buffers can lie in one place one after the other."""
    if any(life.buffer in held for life in lives):
        return False
    shapes = [points.buffers[life.buffer].shape for life in lives]
    if len({(own_bytes(shape), memory_space(shape)) for shape in shapes}) > 1:
        return False
    for one, other in pairwise(lives):
        if one.first == other.first or one.last > other.first:
            return False
        if one.last == other.first and not _overwrites(points, overwriting, one.buffer, other.buffer):
            return False
    return True


def _overwrites(points: PointsTo, overwriting: Overwriting, old: int, new: int) -> bool:
    """Whether the instruction that defines one buffer may do so where another lies that it reads."""
    definition = points.buffers[new]
    instruction = points.computation.instructions[definition.definer]
    if (old, new) in points.shared:
        return True
    positions = points.computation.positions
    read_as = [number for number, name in enumerate(instruction.operands) if old in points.parts[positions[name]]]
    shape = points.buffers[old].shape
    return len(read_as) > 0 and all(overwriting.may(instruction, number, shape, definition.part) for number in read_as)


def _swapped(points: PointsTo, state: Sequence[tuple[int, int]], parameters: Mapping[int, tuple[int, int]]) -> int:
    """Return the bytes of parameters that go round in a circle; each is copied before any is overwritten."""
    follows = {old: new for old, new in state if new in parameters}
    total = 0
    for start in follows:
        at, seen = follows[start], {start}
        while at in follows and at not in seen:
            seen.add(at)
            at = follows[at]
        if at == start:
            total += own_bytes(points.buffers[start].shape)
    return total
