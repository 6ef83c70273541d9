"""What XLA's buffer assignment of a compiled function reserves."""

from dataclasses import dataclass
from typing import Any

from lowtide.frameworks.buffer_assignment import read_assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedBytes:
    """Bytes of the allocations of a buffer assignment, without constants and what is local to a thread."""

    reserved_bytes: int
    temp_bytes: int
    unused_bytes: int
    """Of the temporaries: bytes on which no buffer ever lies."""
    allocations: int


def assigned_bytes(executable: Any) -> AssignedBytes | None:
    """Read the buffer assignment of a compiled function; None where the backend does not give it away. O(buffers)."""
    content = getattr(executable.memory_analysis(), "serialized_buffer_assignment_proto", None)
    if not content:
        return None
    counted = [
        each
        for each in read_assignment(content, {}, "the compiled function")
        if not (each.is_constant or each.is_thread_local)
    ]
    temporary = [each for each in counted if each.is_temporary]
    return AssignedBytes(
        reserved_bytes=sum(each.size_bytes for each in counted),
        temp_bytes=sum(each.size_bytes for each in temporary),
        unused_bytes=sum(each.unused_bytes for each in temporary),
        allocations=len(counted),
    )
