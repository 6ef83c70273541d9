"""Read XLA's buffer assignment (BufferAssignmentProto): the memory it reserved for a module, and the offsets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.protobuf.binary import read_binary
from lowtide.frameworks.protobuf.message import Message

Place = tuple[str, str, tuple[int, ...]]
"""Computation, instruction, and index in its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedBuffer:
    place: Place | None
    """None for an instruction outside of the module."""
    size_bytes: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A memory range that XLA reserves during the run."""

    number: int
    size_bytes: int
    is_thread_local: bool
    is_parameter: bool
    is_constant: bool
    is_result: bool
    color: int
    """The memory space."""
    buffers: tuple[AssignedBuffer, ...]

    @property
    def is_temporary(self) -> bool:
        """Whether `memory_analysis()` counts it as temporary."""
        return not (self.is_thread_local or self.is_parameter or self.is_constant or self.is_result)

    @property
    def unused_bytes(self) -> int:
        covered, end = 0, 0
        for start, stop in sorted((each.offset, each.offset + each.size_bytes) for each in self.buffers):
            covered += max(0, stop - max(start, end))
            end = max(end, stop)
        return self.size_bytes - covered


class HloMessage(Message):
    KINDS: ClassVar[dict[str, type[Message]]] = {}
    FORMAT = "HloProto"


HloMessage.declare(
    Instruction="name 1 string id 35 int64",
    Computation="name 1 string instructions 2 Instruction*",
    Module="computations 3 Computation*",
    Location="shape_index 3 int64* instruction_id 4 int64",
    LogicalBuffer="id 1 int64 defined_at 3 Location",
    Assigned="logical_buffer_id 1 int64 offset 2 int64 size 3 int64",
    BufferAllocation="index 1 int64 size 2 int64 is_thread_local 3 bool is_entry_computation_parameter 5 bool"
    " maybe_live_out 7 bool color 8 int64 assigned 9 Assigned* is_constant 12 bool",
    BufferAssignment="logical_buffers 1 LogicalBuffer* buffer_allocations 3 BufferAllocation*",
)


def read_assignment(content: bytes, instructions: Mapping[int, tuple[str, str]], where: str) -> tuple[Allocation, ...]:
    """Return the allocations of a BufferAssignmentProto. Raises MalformedInputError for an invalid or empty one."""
    proto = read_binary(HloMessage.KINDS["BufferAssignment"], content, where)
    if not proto.buffer_allocations:
        raise MalformedInputError(f"{where}: the buffer assignment has no allocations; check that the file is complete")
    places: dict[int, Place] = {}
    for buffer in proto.logical_buffers:
        names = instructions.get(buffer.defined_at.instruction_id)
        if names is not None:
            places[buffer.id] = (*names, tuple(buffer.defined_at.shape_index))
    return tuple(_allocation(each, places) for each in proto.buffer_allocations)


def instruction_numbers(module: bytes, where: str) -> dict[int, tuple[str, str]]:
    """Return computation and name by instruction number in an HloModuleProto."""
    computations = read_binary(HloMessage.KINDS["Module"], module, where).computations
    return {each.id: (computation.name, each.name) for computation in computations for each in computation.instructions}


def _allocation(proto: Any, places: Mapping[int, Place]) -> Allocation:
    buffers = (
        AssignedBuffer(place=places.get(each.logical_buffer_id), offset=each.offset, size_bytes=each.size)
        for each in proto.assigned
    )
    return Allocation(
        number=proto.index,
        size_bytes=proto.size,
        is_thread_local=proto.is_thread_local,
        is_parameter=proto.is_entry_computation_parameter,
        is_constant=proto.is_constant,
        is_result=proto.maybe_live_out,
        color=proto.color,
        buffers=tuple(buffers),
    )
