"""What lies beside a net's file: shapes of its blobs, and the net that fills its parameters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from lowtide.core.errors import MalformedInputError
from lowtide.core.files import read_bytes


def known_file(path: Path) -> Path | None:
    """Return the file of shapes beside a net: NAME.value_info.json, or value_info.json beside a predict_net."""
    own = path.with_name(f"{path.stem}.value_info.json")
    if own.is_file():
        return own
    shared = path.with_name(path.stem.replace("predict_net", "value_info") + ".json")
    return shared if "predict_net" in path.stem and shared.is_file() else None


def init_file(path: Path) -> Path | None:
    """Return the file of the net that fills the parameters: its name says init_net where the other says predict_net."""
    found = path.with_name(path.name.replace("predict_net", "init_net"))
    return found if "predict_net" in path.stem and found.is_file() else None


def read_known(path: Path) -> Mapping[str, Any]:
    """Return what a file says of blobs; raises MalformedInputError for one that is no JSON object."""
    try:
        found: Any = msgspec.json.decode(read_bytes(path))
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedInputError(f"{path}: no valid JSON ({error}); write {{blob: [type, [sizes]]}}") from None
    if not isinstance(found, dict):
        raise MalformedInputError(f"{path}: holds a {type(found).__name__}; write {{blob: [type, [sizes]]}}")
    return cast("Mapping[str, Any]", found)
