"""Offline optimization by ONNX Runtime."""

from collections.abc import Mapping
from importlib import import_module
from operator import eq
from pathlib import Path
from typing import Any

from onnx import TensorProto

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import mapped_bytes, write_bytes
from lowtide.core.units import format_bytes
from lowtide.frameworks.onnx.loading.external_data import external_locations
from lowtide.frameworks.onnx.loading.load import drained, load_model, load_whole_model
from lowtide.frameworks.onnx.loading.settle_names import settle_names

LEVELS: Mapping[str, str] = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
"""Highest first. "all" is specific to the processor family; even "none" inserts casts, copies quantization nodes and
expands functions."""

LAST_LEVEL = next(iter(LEVELS))


def write_optimized(model: Path, options: Any, output: Path, **more: Any) -> None:
    """Write a model as ONNX Runtime optimizes it with `options`, which get the path; its exceptions pass.

    Unchanged external weights must be reachable from `output`. Raises UnsupportedError for more than 1 GiB of changed
    weights.
    """
    options.optimized_model_filepath = str(output)
    weights = output.with_name(f"{output.name}.weights")
    has_other_files = bool(external_locations(load_model(model)))
    if has_other_files:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights.name)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    open_on_cpu(model, options, **more)
    if has_other_files:
        refer_to_given_weights(model, output, weights)
    settle_names(output)


def quiet_options(level: str) -> Any:
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    return options


def level_of(options: Any) -> str:
    name = options.graph_optimization_level.name
    return next((level for level, its_name in LEVELS.items() if its_name == name), name)


def open_on_cpu(model: Path, options: Any, **more: Any) -> Any:
    """Return a stock session; `more` are arguments of InferenceSession."""
    onnxruntime: Any = import_module("onnxruntime")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"], **more)


_MOST_EMBEDDED_BYTES = 2**30
"""A file holds 2 GiB."""


def refer_to_given_weights(given: Path, optimized: Path, weights: Path) -> None:
    """Let an optimized model refer to unchanged external weights, embed the others, and remove `weights`."""
    before = {tensor.name: tensor for tensor in load_model(given).graph.initializer}
    model = load_whole_model(optimized)
    embedded = 0
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        new = _content_of(tensor, optimized.parent)
        old = before.get(tensor.name)
        if old is not None and _may_be_same(old, tensor) and _holds_the_same(new, _content_of(old, given.parent)):
            del tensor.external_data[:]
            tensor.external_data.extend(old.external_data)
            continue
        embedded += len(new)
        if embedded > _MOST_EMBEDDED_BYTES:
            raise UnsupportedError(
                f"the runtime changes more than {format_bytes(_MOST_EMBEDDED_BYTES)} of weights at this level; "
                "give a lower --level"
            )
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = bytes(new)
    write_bytes(optimized, model.SerializeToString())
    weights.unlink(missing_ok=True)


def _may_be_same(old: TensorProto, new: TensorProto) -> bool:
    same_type = old.data_type == new.data_type and list(old.dims) == list(new.dims)
    return same_type and old.data_location == TensorProto.EXTERNAL


def _content_of(tensor: TensorProto, folder: Path) -> memoryview:
    data = {entry.key: entry.value for entry in tensor.external_data}
    content, start = mapped_bytes(folder / data["location"]), int(data.get("offset", 0))
    return content[start : start + int(data["length"])] if "length" in data else content[start:]


def _holds_the_same(one: memoryview, other: memoryview) -> bool:
    return len(one) == len(other) and all(map(eq, map(bytes, drained([one])), map(bytes, drained([other]))))
