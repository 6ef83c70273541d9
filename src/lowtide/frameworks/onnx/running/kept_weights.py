"""Weights that the runtime wrote anew and left as they were: the optimized model refers to the given files again."""

from pathlib import Path

from onnx import TensorProto

from lowtide.errors import UnsupportedError
from lowtide.files import write_bytes
from lowtide.frameworks.onnx.loading.content import mapped
from lowtide.frameworks.onnx.loading.load import load_model, load_whole_model
from lowtide.units import format_bytes

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
    files: dict[Path, memoryview] = {}
    embedded = 0
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        content = _external(tensor, optimized.parent, files)
        old = before.get(tensor.name)
        if old is not None and _may_be_same(old, tensor) and _equal(_external(old, given.parent, files), content):
            del tensor.external_data[:]
            tensor.external_data.extend(old.external_data)
            continue
        embedded += len(content)
        if embedded > _MOST_EMBEDDED_BYTES:
            raise UnsupportedError(
                f"the runtime changes more than {format_bytes(_MOST_EMBEDDED_BYTES)} of weights at this level; "
                "give a lower --level"
            )
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = bytes(content)
    write_bytes(optimized, model.SerializeToString())
    files.clear()
    weights.unlink(missing_ok=True)


def _may_be_same(old: TensorProto, new: TensorProto) -> bool:
    alike = old.data_type == new.data_type and list(old.dims) == list(new.dims)
    return alike and old.data_location == TensorProto.EXTERNAL


def _external(tensor: TensorProto, folder: Path, files: dict[Path, memoryview]) -> memoryview:
    """Return the bytes of a tensor outside its model, without reading them."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    path = folder / said["location"]
    if path not in files:
        files[path] = mapped(path)
    start = int(said.get("offset", 0))
    return files[path][start : start + int(said["length"])] if "length" in said else files[path][start:]


def _equal(one: memoryview, other: memoryview) -> bool:
    if len(one) != len(other):
        return False
    return all(
        one[start : start + _PART_BYTES] == other[start : start + _PART_BYTES]
        for start in range(0, len(one), _PART_BYTES)
    )
