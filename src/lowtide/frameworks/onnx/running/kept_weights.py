"""Weights that the runtime wrote anew and left as they were: the optimized model refers to the given files again."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import eq
from pathlib import Path

from onnx import TensorProto

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import write_bytes
from lowtide.core.units import format_bytes
from lowtide.frameworks.onnx.loading.load import load_model, load_whole_model

_MOST_EMBEDDED_BYTES = 2**30
"""A file is at most 2 GiB; nodes and small weights must fit as well."""
_PART_BYTES = 2**22


def refer_to_given_weights(given: Path, optimized: Path, weights: Path) -> None:
    """Let an optimized model, whose weights lie in a file beside it, find those that are unchanged where they were.

    The others come into the model, and `weights` is removed. Places are relative to the folder of either model. Raises
    UnsupportedError where more than 1 GiB of weights are new.
    """
    before = {tensor.name: tensor for tensor in load_model(given).graph.initializer}
    model = load_whole_model(optimized)
    embedded = 0
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        new = _Place.of(tensor, optimized.parent)
        old = before.get(tensor.name)
        if old is not None and _may_be_same(old, tensor) and new.holds_the_same_as(_Place.of(old, given.parent)):
            del tensor.external_data[:]
            tensor.external_data.extend(old.external_data)
            continue
        embedded += new.size
        if embedded > _MOST_EMBEDDED_BYTES:
            raise UnsupportedError(
                f"the runtime changes more than {format_bytes(_MOST_EMBEDDED_BYTES)} of weights at this level; "
                "give a lower --level"
            )
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = b"".join(new.parts())
    write_bytes(optimized, model.SerializeToString())
    weights.unlink(missing_ok=True)


def _may_be_same(old: TensorProto, new: TensorProto) -> bool:
    alike = old.data_type == new.data_type and list(old.dims) == list(new.dims)
    return alike and old.data_location == TensorProto.EXTERNAL


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the bytes of a tensor lie; they are read in parts, so that no more than that is ever resident."""

    path: Path
    start: int
    size: int

    @staticmethod
    def of(tensor: TensorProto, folder: Path) -> "_Place":
        said = {entry.key: entry.value for entry in tensor.external_data}
        path, start = folder / said["location"], int(said.get("offset", 0))
        return _Place(path, start, int(said["length"]) if "length" in said else path.stat().st_size - start)

    def parts(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(self.start)
            left = self.size
            while left > 0 and (part := file.read(min(left, _PART_BYTES))):
                yield part
                left -= len(part)

    def holds_the_same_as(self, other: "_Place") -> bool:
        return self.size == other.size and all(map(eq, self.parts(), other.parts()))
