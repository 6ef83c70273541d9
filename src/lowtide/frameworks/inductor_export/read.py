"""An export becomes a graph: nodes are ops, and buffers live as Inductor's estimate has them live."""

from collections.abc import Mapping

from lowtide.core.errors import GraphError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.inductor_export.export import Export, ExportBuffer
from lowtide.frameworks.inductor_export.storage import Storage, storage_of


def read_export(export: Export) -> Graph:
    """Read an export into a graph; raises GraphError where it holds no program. O(n + e).

    Op k is node k. Inputs that Inductor may free are donated, unless they are outputs, too; the others are not in an
    export. Buffers without bytes, which stand for mutations and for order, are there and have none.
    """
    known: dict[str, ExportBuffer] = {}
    for buffer in export.buffers:
        if known.setdefault(buffer.name, buffer) is not buffer:
            raise GraphError(f"two buffers are named {buffer.name!r}; names must be unique")
    writers = _writers(export, known)
    storage, unknown = storage_of(export.buffers)
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
            pure=False,  # an export does not tell what may run twice
        )
    undescribed = (name for node in export.nodes for name in dict.fromkeys(node.buffer_names) if name not in known)
    unknown += [f"buffer {name!r} has a node that writes it and no size" for name in undescribed]
    for sentence in unknown:
        builder.note(sentence)
    return builder.build()


def _writers(export: Export, known: Mapping[str, ExportBuffer]) -> dict[str, int]:
    """Return the node that writes each buffer; raises GraphError where there is none, or more than one."""
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
