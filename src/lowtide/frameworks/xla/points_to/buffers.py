"""The logical buffers of values."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.opcodes import VIEWS, ends, starts
from lowtide.frameworks.xla.points_to.overwriting import output_operand_aliases
from lowtide.frameworks.xla.text.module import Computation, Instruction
from lowtide.frameworks.xla.text.shape import HloShape

Parts = list[int]

_NO_TABLES: frozenset[int] = frozenset()


class LogicalBuffer(NamedTuple):
    """An array, or a tuple's table of pointers."""

    definer: int
    part: int
    shape: HloShape


@dataclass(slots=True)
class PointsTo:
    """The buffers of a computation's values, by part in the order of `HloShape.parts`."""

    computation: Computation
    buffers: list[LogicalBuffer] = field(default_factory=list[LogicalBuffer])
    parts: list[Parts] = field(default_factory=list[Parts])
    paths: list[frozenset[int]] = field(default_factory=list[frozenset[int]])
    """Per view, the tables leading to its value."""
    tables: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    """Per tuple, the table leading to its elements."""
    reads: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """Per instruction except views, the buffers that it needs."""
    shared: dict[tuple[int, int], None] = field(default_factory=dict[tuple[int, int], None])
    """Pairs of a buffer and one made in its storage."""
    returned_in: Mapping[int, int] = field(default_factory=dict[int, int])
    """Set once storage is known."""

    @property
    def result(self) -> Parts:
        return self.parts[self.computation.root]

    def parameter_parts(self) -> dict[int, Parts]:
        found: dict[int, Parts] = {}
        for instruction, parts in zip(self.computation.instructions, self.parts, strict=True):
            if instruction.opcode == "parameter":
                if not instruction.operand_text.isdecimal() or len(instruction.operand_text) > 9:
                    raise MalformedInputError(f"parameter {instruction.name!r} has no number")
                found[int(instruction.operand_text)] = parts
        return found


def points_to(computation: Computation, callees: Mapping[str, PointsTo]) -> PointsTo:
    """Find the logical buffers of a computation, given those of its callees. O(n + parts).

    Parts that a loop or call passes on unchanged stay the caller's. Asynchronous work keeps its operands alive. Raises
    MalformedInputError if shapes and operands do not match.
    """
    found = PointsTo(computation)
    for place, instruction in enumerate(computation.instructions):
        path: frozenset[int] = _NO_TABLES
        operands = [computation.positions[name] for name in instruction.operands]
        if instruction.opcode in VIEWS and operands:
            path = found.paths[operands[0]]
            if instruction.opcode == "get-tuple-element":
                path |= _table_read(found, operands[0])
        old = _old_parts(found, instruction, operands, callees)
        shape = instruction.shape
        if len(old) != len(shape.parts):
            raise MalformedInputError(
                f"instruction {instruction.name!r} of computation {computation.name!r} has the shape "
                f"{instruction.shape_text}, which does not fit its operands"
            )
        parts: Parts = []
        for part, known in enumerate(old):
            if known is None:
                found.buffers.append(LogicalBuffer(place, part, shape.parts[part]))
            parts.append(len(found.buffers) - 1 if known is None else known)
        found.parts.append(parts)
        found.paths.append(path)
        read = () if instruction.opcode in VIEWS else operands
        needed = [buffer for operand in read for buffer in (*found.parts[operand], *sorted(found.paths[operand]))]
        found.reads.append(tuple(dict.fromkeys(needed)))
        _record_sharing(found, instruction, place, operands, callees)
    return found


def _old_parts(
    found: PointsTo, instruction: Instruction, operands: list[int], callees: Mapping[str, PointsTo]
) -> list[int | None]:
    opcode, shape = instruction.opcode, instruction.shape
    new: list[int | None] = [None] * len(shape.parts)
    if not operands:
        return new
    if opcode == "tuple":
        return [None, *(part for operand in operands for part in found.parts[operand])]
    if opcode == "get-tuple-element":
        return [*_element(found, instruction, operands[0])]
    if opcode in VIEWS:
        return [*found.parts[operands[0]]]
    if opcode == "copy" and shape.is_tuple:
        return [None, *found.parts[operands[0]][1:]]
    if opcode == "call":
        return _called(found, instruction, operands, callees)
    if opcode == "while":
        return _state(instruction, [*found.parts[operands[0]]], callees)
    if starts(opcode) or opcode == "send":
        return _started(found, instruction, operands, new)
    if ends(opcode):
        return _ended(found, instruction, operands[0], new)
    return new


def _element(found: PointsTo, instruction: Instruction, operand: int) -> Parts:
    shape = found.computation.instructions[operand].shape
    index = instruction.attribute("index") or ""
    if not index.isdecimal() or len(index) > 9 or int(index) >= len(shape.elements):
        raise MalformedInputError(f"instruction {instruction.name!r} takes element {index!r}, which does not exist")
    return found.parts[operand][shape.starts[int(index)] : shape.starts[int(index) + 1]]


def _table_read(found: PointsTo, operand: int) -> frozenset[int]:
    if operand not in found.tables:
        table, *elements = found.parts[operand]
        definers = {found.buffers[element].definer for element in elements}
        is_needless = definers <= {found.buffers[table].definer}
        found.tables[operand] = _NO_TABLES if is_needless else frozenset((table,))
    return found.tables[operand]


def _called(
    found: PointsTo, instruction: Instruction, operands: list[int], callees: Mapping[str, PointsTo]
) -> list[int | None]:
    new: list[int | None] = [None] * len(instruction.shape.parts)
    callee = _only_callee(instruction, callees)
    if callee is None:
        return new
    given = _given(found, operands, callee)
    return [given.get(part) for part in callee.result] if len(callee.result) == len(new) else new


def _state(instruction: Instruction, first: list[int | None], callees: Mapping[str, PointsTo]) -> list[int | None]:
    bodies = instruction.callees.get("body", ())
    body = callees[bodies[0]] if bodies else None
    parameter = body.parameter_parts().get(0) if body else None
    if len(first) != len(instruction.shape.parts):
        return first  # refused by `points_to`
    if body is None or parameter is None or not len(parameter) == len(body.result) == len(first):
        return [None] * len(first)
    return [old if before == after else None for old, before, after in zip(first, parameter, body.result, strict=True)]


def _started(found: PointsTo, instruction: Instruction, operands: list[int], new: list[int | None]) -> list[int | None]:
    """Return parts: a copy has its result first, other opcodes their operands, all-reduce only a result."""
    shape, opcode = instruction.shape, instruction.opcode
    given = [(found.computation.instructions[operand].shape, found.parts[operand]) for operand in operands]
    flat = [part for _, parts in given for part in parts]
    if not shape.is_tuple or not shape.elements:
        return new
    held = 1 if opcode == "copy-start" else 0
    if held >= len(shape.elements) or (len(shape.elements) < 2 and opcode != "send"):
        return new
    start, end = shape.starts[held], shape.starts[held + 1]
    if end - start == len(flat) and len(given) == 1:
        return [*new[:start], *flat, *new[end:]]
    if end - start == len(flat) + 1 and shape.elements[held].is_tuple:
        return [*new[: start + 1], *flat, *new[end:]]
    return new


def _ended(found: PointsTo, instruction: Instruction, operand: int, new: list[int | None]) -> list[int | None]:
    started, parts = found.computation.instructions[operand].shape, found.parts[operand]
    candidates: list[tuple[Callable[[], bool], slice]] = [(lambda: started == instruction.shape, slice(None))]
    for element in (1, 0):
        if instruction.opcode == "copy-done":
            element = 1 - element
        if element < len(started.elements):
            place = slice(started.starts[element], started.starts[element + 1])
            fits = started.elements[element]
            candidates.append((lambda fits=fits: _is_equal_without_layout(fits, instruction.shape), place))
    if instruction.opcode == "recv-done" and len(started.elements) > 1 and instruction.shape.elements:
        buffer = parts[started.starts[0] : started.starts[1]]
        return [None, *buffer, *new[1 + len(buffer) :]]
    place = next((place for matches, place in candidates if matches()), None)
    return new if place is None else [*parts[place]]


def _is_equal_without_layout(one: HloShape, other: HloShape) -> bool:
    return len(one.parts) == len(other.parts) and all(
        (a.dtype, a.dims) == (b.dtype, b.dims) for a, b in zip(one.parts, other.parts, strict=True)
    )


def _record_sharing(
    found: PointsTo, instruction: Instruction, place: int, operands: list[int], callees: Mapping[str, PointsTo]
) -> None:
    parts = found.parts[place]
    pairs: Iterable[tuple[int, int]] = ()
    if instruction.opcode == "while" and len(operands) == 1:
        pairs = zip(found.parts[operands[0]], parts, strict=True)
    elif instruction.opcode == "call":
        pairs = _overwritten_by_call(found, instruction, parts, operands, callees)
    times = Counter(part for operand in operands for part in found.parts[operand]) if pairs else Counter[int]()
    # a buffer passed twice cannot be overwritten
    found.shared.update({(old, new): None for old, new in pairs if old != new and times[old] == 1})
    for output, number, inner in output_operand_aliases(instruction):
        if number < len(operands):
            shape = found.computation.instructions[operands[number]].shape
            old, new = part_at(shape, inner), part_at(instruction.shape, output)
            if old is not None and new is not None:
                found.shared[found.parts[operands[number]][old], parts[new]] = None


def _overwritten_by_call(
    found: PointsTo, instruction: Instruction, parts: Parts, operands: list[int], callees: Mapping[str, PointsTo]
) -> list[tuple[int, int]]:
    callee = _only_callee(instruction, callees)
    if callee is None or not callee.returned_in or len(callee.result) != len(parts):
        return []
    given = _given(found, operands, callee)
    pairs = [
        (given.get(callee.returned_in.get(buffer, -1)), new) for buffer, new in zip(callee.result, parts, strict=True)
    ]
    return [(old, new) for old, new in pairs if old is not None]


def _only_callee(instruction: Instruction, callees: Mapping[str, PointsTo]) -> PointsTo | None:
    names = [name for named in instruction.callees.values() for name in named]
    return callees[names[0]] if len(names) == 1 else None


def _given(found: PointsTo, operands: list[int], callee: PointsTo) -> dict[int, int]:
    given: dict[int, int] = {}
    for number, parts in callee.parameter_parts().items():
        if number < len(operands) and len(parts) == len(found.parts[operands[number]]):
            given.update(zip(parts, found.parts[operands[number]], strict=True))
    return given


def part_at(shape: HloShape, index: tuple[int, ...]) -> int | None:
    at = 0
    for step in index:
        if step >= len(shape.elements):
            return None
        at += shape.starts[step]
        shape = shape.elements[step]
    return at
