"""The export: nodes with the buffers they write, and buffers with what they depend on."""

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
    """A kernel, or several fused ones."""

    name: str
    buffer_names: tuple[str, ...]
    """The buffers it writes."""


class ExportBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """A buffer that a node writes, or an input that may be freed."""

    name: str
    size_alloc: int
    """Bytes allocated when its node runs."""
    size_free: int
    """Bytes freed after its last reader: fewer where elements of a result are freed one by one."""
    is_input: bool
    is_output: bool
    deps: tuple[str, ...]
    """The buffers that its node reads; all buffers of a node name the same ones."""
    unmet_deps: tuple[str, ...]
    """Those of them that are no inputs of the graph."""


class _ExportRecord(msgspec.Struct, kw_only=True):
    nodes: tuple[ExportNode, ...]
    buffers: tuple[ExportBuffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An export of Inductor, from `config.reorder_for_peak_memory_debug`."""

    nodes: tuple[ExportNode, ...]
    buffers: tuple[ExportBuffer, ...]
    document: Mapping[str, Any]
    """All that was read, with the fields that lowtide does not know."""

    def in_order(self, order: Sequence[int]) -> "Export":
        """Return the export with its nodes in another order and nothing else changed."""
        nodes = self.document["nodes"]
        return Export(
            nodes=tuple(self.nodes[node] for node in order),
            buffers=self.buffers,
            document={**self.document, "nodes": [nodes[node] for node in order]},
        )

    def save(self, path: Path) -> None:
        """Write the export to a file, indented as Inductor does; gzipped when the name ends in .gz."""
        write_bytes(path, msgspec.json.format(msgspec.json.encode(self.document), indent=2))


ExportSource = Union[str, Path, Mapping[str, Any], Export]  # noqa: UP007
"""What exports are read from: a path, a document as `json.load` gives it, or an export."""


def load_export(source: ExportSource) -> Export:
    """Read an export; raises MalformedInputError for what is none, InputError for a file that cannot be read."""
    if isinstance(source, Export):
        return source
    if isinstance(source, str | Path):
        where, document = str(source), read_document(Path(source), dict[str, Any], _REFUSAL)
    else:
        where, document = "the export", dict(source)
    try:
        record = msgspec.convert(document, _ExportRecord)
    except msgspec.ValidationError as error:
        raise MalformedInputError(f"{where}: {_REFUSAL}: {error}") from None
    return Export(nodes=record.nodes, buffers=record.buffers, document=document)
