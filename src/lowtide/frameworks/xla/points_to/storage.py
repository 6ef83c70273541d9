"""The logical buffers sharing storage."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lowtide.frameworks.xla.opcodes import FREE, VIEWS
from lowtide.frameworks.xla.points_to.buffers import PointsTo
from lowtide.frameworks.xla.points_to.overwriting import Overwriting
from lowtide.frameworks.xla.text.shape import memory_space, own_bytes

_BEFORE = -1


class _Life(NamedTuple):
    first: int
    last: int
    buffer: int


@dataclass(frozen=True, slots=True)
class StorageMap:
    of: list[int | None]
    """The first logical buffer in the storage of each; None for constants."""
    parameters: Mapping[int, tuple[int, int]]
    """(number, part) of each parameter's buffer."""
    swapped_bytes: int
    """Copied when a loop's body permutes its state."""

    def returned_in(self, points: PointsTo) -> dict[int, int]:
        """Return buffers of the result in a parameter's storage, mapped to it."""
        found = {buffer: self.of[buffer] for buffer in points.result}
        return {new: old for new, old in found.items() if old is not None and old != new and old in self.parameters}


def storage_of(
    points: PointsTo, overwriting: Overwriting, *, state: Sequence[tuple[int, int]] = (), given: Iterable[int] = ()
) -> StorageMap:
    """Find which logical buffers share storage. O(n + parts log parts).

    `state` pairs a parameter's buffer with the result's buffer that must end in its storage. They share storage
    if the second overwrites the first; if the first dies earlier, see `handed_over`. `given` are other buffers
    of parameters that may be overwritten.
    """
    lives, parameters, constants = _lives(points)
    protected = parameters.keys() - {old for old, _ in state} - set(given)
    last = {life.buffer: life.last for life in lives}
    groups = {life.buffer: [life] for life in lives if life.buffer not in constants}
    of: list[int | None] = [None if life.buffer in constants else life.buffer for life in lives]

    def merge(old: int, new: int) -> None:
        one, other = of[old], of[new]
        if one is None or other is None or one == other:
            return
        merged = sorted(groups[one] + groups[other], key=lambda life: (life.first, life.last))
        if _fit(points, overwriting, merged, protected):
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
    """Find the storage of a called computation, which overwrites only operands sharing storage with a result."""
    parameters = {buffer for parts in points.parameter_parts().values() for buffer in parts}
    free = storage_of(points, overwriting, given=parameters)
    returned = {free.of[buffer] for buffer in points.result}
    return storage_of(points, overwriting, given=[buffer for buffer in parameters if free.of[buffer] in returned])


def handed_over(points: PointsTo, storage: StorageMap, state: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the storages of parameters that are dead before a result is written there, mapped to the result's.

    Other buffers may use them in between.
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


def _fit(points: PointsTo, overwriting: Overwriting, lives: list[_Life], protected: AbstractSet[int]) -> bool:
    if any(life.buffer in protected for life in lives):
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
    definition = points.buffers[new]
    instruction = points.computation.instructions[definition.definer]
    if (old, new) in points.shared:
        return True
    positions = points.computation.positions
    shape = points.buffers[old].shape
    allowed = [
        overwriting.may_overwrite(instruction, number, shape, definition.part)
        for number, name in enumerate(instruction.operands)
        if old in points.parts[positions[name]]
    ]
    return bool(allowed) and all(allowed)


def _swapped(points: PointsTo, state: Sequence[tuple[int, int]], parameters: Mapping[int, tuple[int, int]]) -> int:
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
