"""Nodes and buffers of an export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import msgspec

from lowtide.core.documents import read_document
from lowtide.core.errors import MalformedInputError
from lowtide.core.files import write_bytes

_REFUSAL = "no valid export of Inductor"


class ExportNode(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, fused or not."""

    name: str
    buffer_names: tuple[str, ...]
    """Buffers that it writes."""


class ExportBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """A buffer of a node, or an input that may be freed."""

    name: str
    size_alloc: int
    """Bytes allocated when its node runs."""
    size_free: int
    """Bytes freed after its last reader, fewer if elements of a result are freed separately."""
    is_input: bool
    is_output: bool
    deps: tuple[str, ...]
    """Buffers that its node reads."""
    unmet_deps: tuple[str, ...]
    """`deps` except inputs of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An export of Inductor, from `config.reorder_for_peak_memory_debug`."""

    nodes: tuple[ExportNode, ...]
    buffers: tuple[ExportBuffer, ...]
    document: Mapping[str, Any]
    """With all fields, known or not."""

    def in_order(self, order: Sequence[int]) -> "Export":
        """Return the export with its nodes in another order."""
        nodes = self.document["nodes"]
        return Export(
            nodes=tuple(self.nodes[node] for node in order),
            buffers=self.buffers,
            document={**self.document, "nodes": [nodes[node] for node in order]},
        )

    def save(self, path: Path) -> None:
        """Write the export in Inductor's format, gzipped if the name ends in .gz."""
        write_bytes(path, msgspec.json.format(msgspec.json.encode(self.document), indent=2))


ExportSource = Union[str, Path, Mapping[str, Any], Export]  # noqa: UP007
"""A path, a document from `json.load`, or an export."""


def load_export(source: ExportSource) -> Export:
    """Return an export; raises MalformedInputError for an invalid one, InputError for an unreadable file."""
    if isinstance(source, Export):
        return source
    if isinstance(source, str | Path):
        where, document = str(source), read_document(Path(source), dict[str, Any], _REFUSAL)
    else:
        where, document = "the export", dict(source)
    try:
        return msgspec.convert({**document, "document": document}, Export)
    except msgspec.ValidationError as error:
        raise MalformedInputError(f"{where}: {_REFUSAL}: {error}") from None
