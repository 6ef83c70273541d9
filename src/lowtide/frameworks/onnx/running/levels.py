"""ONNX Runtime's own optimization, offline: the graph that runs becomes a file, which then can be planned."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

LEVELS: Mapping[str, str] = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
"""By names, the highest first. "all" ties the file to the family of processors that it is made on; even "none" writes
what always happens: casts of types without kernels, copies of quantization nodes, functions expanded."""


def write_optimized(model: Path, level: str, output: Path) -> None:
    """Let ONNX Runtime load a model at a level and write what it would run; it raises exceptions of its own."""
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.optimized_model_filepath = str(output)
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
