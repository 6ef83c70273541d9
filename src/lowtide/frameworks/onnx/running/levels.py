"""ONNX Runtime's own optimization, offline: the graph that runs becomes a file, which then can be planned."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from lowtide.frameworks.onnx.loading.external_data import external_locations
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.running.kept_weights import refer_to_given_weights

LEVELS: Mapping[str, str] = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
"""By names, the highest first. "all" ties the file to the family of processors that it is made on; even "none" writes
what always happens: casts of types without kernels, copies of quantization nodes, functions expanded."""


_MOST_PASSES = 3


def write_optimized(model: Path, level: str, output: Path) -> None:
    """Let ONNX Runtime load a model at a level and write what it would run; it raises exceptions of its own.

    Weights in other files stay there, except for those that the runtime changes; `output` must lie where the same
    places lead to the same files. Where one pass is not enough, what the runtime makes of the model in one stays beside
    it, at `first_pass(output)`. Raises UnsupportedError where more than 1 GiB of such weights are changed.
    """
    first = first_pass(output)
    first.unlink(missing_ok=True)
    _write(model, level, output)
    # What optimization makes of a DequantizeLinear may have several readers again: the runtime copies it when it loads
    # the result, and the copies would run late.
    for _ in range(_MOST_PASSES):
        nodes = load_model(output).graph.node
        if not any(node.op_type == "DequantizeLinear" for node in nodes):
            return
        again = output.with_name(f"{output.name}.again")
        _write(output, "none", again)
        if not first.exists():
            output.replace(first)
        again.replace(output)
        if len(load_model(output).graph.node) == len(nodes):
            return


def first_pass(output: Path) -> Path:
    """Return where the graph lies that the runtime runs itself, if the one at `output` is not it."""
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
