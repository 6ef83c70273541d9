"""Read an export into a graph, with buffers as in Inductor's estimate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.core.errors import GraphError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.inductor_export.export import Export, ExportBuffer

_DEEPEST_RESULT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bytes that are allocated together and freed together."""

    name: str
    size_bytes: int
    allocated_by: str
    freed_as: str | None
    """The buffer with the last reader that frees them, if any."""


def read_export(export: Export) -> Graph:
    """Return an export as a graph, with op k for node k; raises GraphError for an invalid program. O(n + e).

    Inputs are donated unless they are outputs; exports omit inputs that must not be freed. Mutations and ordering
    appear as buffers of 0 bytes.
    """
    known: dict[str, ExportBuffer] = {}
    for buffer in export.buffers:
        if known.setdefault(buffer.name, buffer) is not buffer:
            raise GraphError(f"two buffers are named {buffer.name!r}; names must be unique")
    writers = _writers(export, known)
    storage, unknown = _storage_of(export.buffers)
    builder = GraphBuilder("inductor_export")
    allocated: dict[str, list[int]] = {name: [] for name in known}
    freed: dict[str, list[int]] = {name: [] for name in known}
    for part in storage:
        buffer = builder.add_buffer(part.name, part.size_bytes, _lifetime(part, known))
        allocated[part.allocated_by].append(buffer)
        if part.freed_as is not None:
            freed[part.freed_as].append(buffer)
    for place, node in enumerate(export.nodes):
        own = [name for name in dict.fromkeys(node.buffer_names) if name in known]
        deps = dict.fromkeys(dep for name in own for dep in known[name].deps)
        for dep in dict.fromkeys(dep for name in own for dep in known[name].unmet_deps):
            if dep not in known:
                raise GraphError(f"node {node.name!r} depends on {dep!r}, which is no buffer of the export")
        before = [writers[dep] for dep in deps if dep in writers and writers[dep] != place]
        written = dict.fromkeys(buffer for name in own for buffer in allocated[name])
        needed = [buffer for name in (*own, *deps) if name in known for buffer in freed[name]]
        builder.add_op(
            node.name,
            "node",
            reads=[buffer for buffer in dict.fromkeys(needed) if buffer not in written],
            writes=list(written),
            after=sorted(set(before)),
            pure=False,
        )
    undescribed = (name for node in export.nodes for name in dict.fromkeys(node.buffer_names) if name not in known)
    unknown += [f"buffer {name!r} is written and has no size" for name in undescribed]
    for sentence in unknown:
        builder.note(sentence)
    return builder.build()


def _writers(export: Export, known: Mapping[str, ExportBuffer]) -> dict[str, int]:
    writers: dict[str, int] = {}
    for place, node in enumerate(export.nodes):
        for name in node.buffer_names:
            if writers.setdefault(name, place) != place:
                raise GraphError(f"nodes {export.nodes[writers[name]].name!r} and {node.name!r} both write {name!r}")
            if name in known and known[name].is_input:
                raise GraphError(f"node {node.name!r} writes {name!r}, which is an input")
    for name, buffer in known.items():
        if not buffer.is_input and name not in writers:
            raise GraphError(f"no node writes buffer {name!r}; list it in the buffer_names of one, or make it an input")
    return writers


def _lifetime(part: Storage, known: Mapping[str, ExportBuffer]) -> Lifetime:
    if part.freed_as is None:
        return Lifetime.OUTPUT
    buffer = known[part.freed_as]
    if buffer.is_input:
        return Lifetime.INPUT if buffer.is_output else Lifetime.DONATED
    return Lifetime.OUTPUT if buffer.is_output else Lifetime.INTERMEDIATE


def _storage_of(buffers: Sequence[ExportBuffer]) -> tuple[list[Storage], list[str]]:
    """Split allocations into parts that are freed together. O(n + e).

    A buffer that frees more than it allocates is an element of a result: the nearest dependency, across empty buffers,
    that allocates more than it frees. The rest of a result is never freed, as in Inductor's estimate.
    """
    known = {buffer.name: buffer for buffer in buffers}
    left = {buffer.name: max(0, buffer.size_alloc - buffer.size_free) for buffer in buffers if not buffer.is_input}
    found: list[Storage] = []
    unknown: list[str] = []
    for buffer in buffers:
        own = buffer.size_free if buffer.is_input else min(buffer.size_alloc, buffer.size_free)
        missing = buffer.size_free - own
        result = None if missing == 0 else _result_of(buffer, missing, known, left)
        if result is None:
            found.append(Storage(name=buffer.name, size_bytes=own, allocated_by=buffer.name, freed_as=buffer.name))
            if missing:
                unknown.append(f"buffer {buffer.name!r} frees {missing} bytes that no buffer it reads allocates")
            continue
        left[result] -= missing
        if own:
            found.append(Storage(name=buffer.name, size_bytes=own, allocated_by=buffer.name, freed_as=buffer.name))
        name = f"{buffer.name} in {result}" if own else buffer.name
        found.append(Storage(name=name, size_bytes=missing, allocated_by=result, freed_as=buffer.name))
    found += [
        Storage(name=f"rest of {name}", size_bytes=size, allocated_by=name, freed_as=None)
        for name, size in left.items()
        if size
    ]
    return found, unknown


def _result_of(
    buffer: ExportBuffer, missing: int, known: Mapping[str, ExportBuffer], left: Mapping[str, int]
) -> str | None:
    near = buffer.deps
    for _ in range(_DEEPEST_RESULT):
        for name in near:
            if left.get(name, 0) >= missing:
                return name
        inner = [known[name] for name in near if name in known and known[name].size_free == 0]
        if len(inner) != 1:  # an element belongs to one result
            return None
        near = inner[0].deps
    return None
