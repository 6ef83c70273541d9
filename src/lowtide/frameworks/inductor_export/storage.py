"""Which node allocates what is freed as which buffer: elements of a result are allocated together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.frameworks.inductor_export.export import ExportBuffer

_DEEPEST_RESULT = 8
"""How deep results may lie in results: elements of elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bytes that are allocated and freed at once."""

    name: str
    size_bytes: int
    allocated_by: str
    """The buffer whose node allocates them."""
    freed_as: str | None
    """The buffer with whose last reader they go; None for what nothing frees."""


def storage_of(buffers: Sequence[ExportBuffer]) -> tuple[list[Storage], list[str]]:
    """Split what buffers allocate into what is freed at once; also return what could not be told, in sentences.

    A buffer that frees more than it allocates is an element of a result: the rest lies in the nearest buffer it
    depends on, over buffers without bytes, that allocates more than it frees. What is left over there is never freed,
    as in Inductor's own estimate. O(n + e).
    """
    known = {buffer.name: buffer for buffer in buffers}
    left = {buffer.name: max(0, buffer.size_alloc - buffer.size_free) for buffer in buffers if not buffer.is_input}
    found: list[Storage] = []
    unknown: list[str] = []
    for buffer in buffers:
        own = buffer.size_free if buffer.is_input else min(buffer.size_alloc, buffer.size_free)
        missing = buffer.size_free - own
        whole = None if missing == 0 else _whole_of(buffer, missing, known, left)
        if whole is None:
            found.append(Storage(name=buffer.name, size_bytes=own, allocated_by=buffer.name, freed_as=buffer.name))
            if missing:
                unknown.append(f"buffer {buffer.name!r} frees {missing} bytes that no buffer it reads allocates")
            continue
        left[whole] -= missing
        if own:
            found.append(Storage(name=buffer.name, size_bytes=own, allocated_by=buffer.name, freed_as=buffer.name))
        name = f"{buffer.name} in {whole}" if own else buffer.name
        found.append(Storage(name=name, size_bytes=missing, allocated_by=whole, freed_as=buffer.name))
    found += [
        Storage(name=f"rest of {name}", size_bytes=size, allocated_by=name, freed_as=None)
        for name, size in left.items()
        if size
    ]
    return found, unknown


def _whole_of(
    buffer: ExportBuffer, missing: int, known: Mapping[str, ExportBuffer], left: Mapping[str, int]
) -> str | None:
    """Return the nearest buffer that has so many bytes left for an element, None where there is none."""
    near = buffer.deps
    for _ in range(_DEEPEST_RESULT):
        for name in near:
            if left.get(name, 0) >= missing:
                return name
        inner = [known[name] for name in near if name in known and known[name].size_free == 0]
        if len(inner) != 1:  # an element is of one result
            return None
        near = inner[0].deps
    return None
