"""What lowtide notes in the metadata of models that it writes, so that one file is enough."""

import os
from pathlib import Path

from lowtide.core.errors import LowtideError
from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.loading.content import mapped
from lowtide.frameworks.wire import BYTES, Content, fields

PLANNED = "lowtide.planned"
"""The nodes stand in a planned order; the value says at which level the runtime has optimized them, or "file"."""

BY_DEFAULT = ", in the default order"
"""How that value ends where the runtime's default order is the planned one, and not the order in which nodes stand."""

ADDRESSES = "lowtide.addresses"
"""Where every allocation of a run lies, for inputs of the shapes that were planned for."""


def read_metadata(model: str | bytes | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata of a model without reading the rest; none where there is no such model."""
    try:
        return _metadata(model if isinstance(model, bytes) else mapped(Path(model)))
    except LowtideError:
        return {}  # whoever opens the model says what is wrong with it


def _metadata(content: Content) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, wire, _, at, end in fields(content, 0, len(content)):
        if number == of.METADATA_PROPS and wire == BYTES:
            entry = {
                field: bytes(content[begin:stop]).decode(errors="replace")
                for field, kind, _, begin, stop in fields(content, at, end)
                if kind == BYTES
            }
            found[entry.get(of.KEY, "")] = entry.get(of.VALUE, "")
    return found
