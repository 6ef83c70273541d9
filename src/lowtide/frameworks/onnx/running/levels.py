"""Offline optimization by ONNX Runtime: the graph that runs becomes a file that can be planned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import eq
from pathlib import Path
from typing import Any

from onnx import TensorProto

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import write_bytes
from lowtide.core.units import format_bytes
from lowtide.frameworks.onnx.loading.external_data import external_locations
from lowtide.frameworks.onnx.loading.load import load_model, load_whole_model

LEVELS: Mapping[str, str] = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
"""Levels by name, highest first. Files of "all" depend on the processor family. Even "none" inserts casts for missing
kernels, copies quantization nodes and expands functions.
"""


_MOST_PASSES = 3


def write_optimized(model: Path, level: str, output: Path) -> None:
    """Let ONNX Runtime optimize a model at a level and write it; its own exceptions pass through.

    Weights in other files stay there unless the runtime changes them; `output` must be in a folder that reaches the
    same files. If one pass is not enough, the first pass's graph stays at `first_pass(output)`. Raises UnsupportedError
    if more than 1 GiB of such weights change.
    """
    first = first_pass(output)
    first.unlink(missing_ok=True)
    _write(model, level, output)
    # An optimized DequantizeLinear may have several readers. The runtime copies it on loading, and copies run late.
    nodes = load_model(output).graph.node
    for _ in range(_MOST_PASSES):
        if not any(node.op_type == "DequantizeLinear" for node in nodes):
            return
        again = output.with_name(f"{output.name}.again")
        _write(output, "none", again)
        if not first.exists():
            output.replace(first)
        again.replace(output)
        earlier, nodes = nodes, load_model(output).graph.node
        if len(nodes) == len(earlier):
            return


def first_pass(output: Path) -> Path:
    """Return the path of the graph that the runtime runs itself, if it differs from `output`."""
    return output.with_name(f"{output.stem}.first.onnx")


def _write(model: Path, level: str, output: Path) -> None:
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.optimized_model_filepath = str(output)
    weights = output.with_name(f"{output.name}.weights")
    has_other_files = bool(external_locations(load_model(model)))
    if has_other_files:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights.name)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    if has_other_files:
        refer_to_given_weights(model, output, weights)


_MOST_EMBEDDED_BYTES = 2**30
"""Limit on embedded weights: a file holds at most 2 GiB."""
_PART_BYTES = 2**22


def refer_to_given_weights(given: Path, optimized: Path, weights: Path) -> None:
    """Let an optimized model, whose weights are in a file of its own, refer to unchanged weights where they were.

    Other weights are embedded, and `weights` is removed. Paths are relative to the folder of each model. Raises
    UnsupportedError for more than 1 GiB of new weights.
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
    """The bytes of a tensor in a file, read in parts to bound resident memory."""

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
