"""Read XLA's buffer assignment (BufferAssignmentProto): the memory it reserved for a module, and the offsets."""

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.wire import BYTES, VARINT, begun_fields, read_varint

Place = tuple[str, str, tuple[int, ...]]
"""The definition of a logical buffer: computation, instruction, index in its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedBuffer:
    """A logical buffer within an allocation."""

    place: Place | None
    """None for an instruction that the module does not contain."""
    size_bytes: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A memory range that XLA reserves while the program runs."""

    number: int
    size_bytes: int
    is_thread_local: bool
    is_parameter: bool
    is_constant: bool
    is_result: bool
    """Whether it contains a result ("may be live out")."""
    color: int
    """The memory space."""
    buffers: tuple[AssignedBuffer, ...]

    @property
    def is_temporary(self) -> bool:
        """Whether `memory_analysis()` counts it in the temporary bytes."""
        return not (self.is_thread_local or self.is_parameter or self.is_constant or self.is_result)

    @property
    def unused_bytes(self) -> int:
        """Bytes that no buffer uses."""
        covered, end = 0, 0
        for start, stop in sorted((each.offset, each.offset + each.size_bytes) for each in self.buffers):
            covered += max(0, stop - max(start, end))
            end = max(end, stop)
        return self.size_bytes - covered


def read_assignment(content: bytes, instructions: Mapping[int, tuple[str, str]], where: str) -> tuple[Allocation, ...]:
    """Return the allocations of a serialized BufferAssignmentProto.

    `instructions` maps the number of an instruction to its computation and name, see `instruction_numbers`. Raises
    MalformedInputError for a message without allocations.
    """
    places: dict[int, Place | None] = {}
    allocations: list[Allocation] = []
    for number, wire, value in begun_fields(content):
        if number == 1 and wire == BYTES and isinstance(value, bytes):
            known, place = _logical_buffer(value, instructions)
            places[known] = place
    for number, wire, value in begun_fields(content):
        if number == 3 and wire == BYTES and isinstance(value, bytes):
            allocations.append(_allocation(value, places))
    if not allocations:
        raise MalformedInputError(f"{where}: the buffer assignment has no allocations; check that the file is complete")
    return tuple(allocations)


def instruction_numbers(module: bytes) -> dict[int, tuple[str, str]]:
    """Return computation and name by instruction number, from a serialized HloModuleProto."""
    found: dict[int, tuple[str, str]] = {}
    for number, wire, value in begun_fields(module):
        if (number, wire) != (3, BYTES) or not isinstance(value, bytes):
            continue
        parts = list(begun_fields(value))
        name = next((_text(part) for field, kind, part in parts if (field, kind) == (1, BYTES)), "")
        for field, kind, part in parts:
            if (field, kind) == (2, BYTES) and isinstance(part, bytes):
                values = {inner: content for inner, _, content in begun_fields(part)}
                identity = values.get(35, 0)
                if isinstance(identity, int):
                    found[identity] = (name, _text(values.get(1, b"")))
    return found


def _logical_buffer(content: bytes, instructions: Mapping[int, tuple[str, str]]) -> tuple[int, Place | None]:
    values = {number: value for number, _, value in begun_fields(content)}
    location = values.get(3, b"")
    identity, index = 0, list[int]()
    for number, wire, value in begun_fields(location if isinstance(location, bytes) else b""):
        if number == 4 and isinstance(value, int):
            identity = value
        elif number == 3 and isinstance(value, bytes):
            index += _packed(value)
        elif number == 3 and wire == VARINT and isinstance(value, int):
            index.append(value)
    names = instructions.get(identity)
    return _int(values.get(1, 0)), None if names is None else (*names, tuple(index))


def _allocation(content: bytes, places: Mapping[int, Place | None]) -> Allocation:
    values = {number: _int(value) for number, wire, value in begun_fields(content) if wire == VARINT}
    buffers: list[AssignedBuffer] = []
    for number, wire, value in begun_fields(content):
        if (number, wire) == (9, BYTES) and isinstance(value, bytes):
            assigned = {field: _int(part) for field, _, part in begun_fields(value)}
            place = places.get(assigned.get(1, 0))
            buffers.append(AssignedBuffer(place=place, offset=assigned.get(2, 0), size_bytes=assigned.get(3, 0)))
    return Allocation(
        number=values.get(1, 0),
        size_bytes=values.get(2, 0),
        is_thread_local=bool(values.get(3)),
        is_parameter=bool(values.get(5)),
        is_constant=bool(values.get(12)),
        is_result=bool(values.get(7)),
        color=values.get(8, 0),
        buffers=tuple(buffers),
    )


def _packed(content: bytes) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(content):
        value, at = read_varint(content, at, len(content))
        found.append(value)
    return found


def _int(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0


def _text(value: int | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
