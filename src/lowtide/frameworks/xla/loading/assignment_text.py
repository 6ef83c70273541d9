"""`read_assignment_text`: read the text dump of a buffer assignment."""

import re
from collections.abc import Mapping

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.buffer_assignment import Allocation, AssignedBuffer, Place
from lowtide.frameworks.xla.text.module import HloModule

_ALLOCATION = re.compile(r"allocation (\d{1,18}): size (\d{1,18})((?:, .*)?):")
_BEGINNINGS = ("allocation", " value")
_COLOR = re.compile(r", color (\d{1,9})")
_VALUE = re.compile(
    r" value: <\d{1,18} ([^{ ]+)(?:\{([\d,]*)\})?(?: \(phi\))? @\d+> \(size=(\d{1,18}),offset=(\d{1,18})\)"
)


def read_assignment_text(text: str, module: HloModule, where: str) -> tuple[Allocation, ...]:
    """Return the allocations in a `*-buffer-assignment.txt`; raises MalformedInputError. O(text)."""
    computation_of = {
        instruction.name: computation.name
        for computation in module.computations
        for instruction in computation.instructions
    }
    allocations: list[Allocation] = []
    head: re.Match[str] | None = None
    buffers: list[AssignedBuffer] = []
    for number, line in enumerate(text.splitlines(), 1):
        begun, value = _ALLOCATION.fullmatch(line), _VALUE.match(line)
        if value is not None and head is not None:
            buffers.append(_buffer(value, computation_of))
        elif begun is not None or head is not None:
            if head is not None:
                allocations.append(_allocation(head, buffers))
            head, buffers = begun, []
            if begun is None:
                if line.startswith(_BEGINNINGS):
                    raise MalformedInputError(f"{where}: line {number} is malformed; is it cut off?")
                break  # the rest repeats the allocations
    if head is not None:
        allocations.append(_allocation(head, buffers))
    if not allocations:
        raise MalformedInputError(f"{where}: the buffer assignment has no allocations; is it cut off?")
    return tuple(allocations)


def _buffer(value: re.Match[str], computation_of: Mapping[str, str]) -> AssignedBuffer:
    name, index, size, offset = value.groups()
    computation = computation_of.get(name)
    path = tuple(int(each) for each in (index or "").split(",") if each)
    place: Place | None = None if computation is None else (computation, name, path)
    return AssignedBuffer(place=place, size_bytes=int(size), offset=int(offset))


def _allocation(head: re.Match[str], buffers: list[AssignedBuffer]) -> Allocation:
    number, size, rest = head.groups()
    color = _COLOR.match(rest)
    return Allocation(
        number=int(number),
        size_bytes=int(size),
        is_thread_local=", thread-local" in rest,
        is_parameter=", parameter " in rest,
        is_constant=", constant" in rest,
        is_result=", maybe-live-out" in rest,
        color=0 if color is None else int(color[1]),
        buffers=tuple(buffers),
    )
