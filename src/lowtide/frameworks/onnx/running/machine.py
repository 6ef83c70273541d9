"""The machine that a file with a blocked layout is for.

At its last level, ONNX Runtime stores channels in blocks: 16 with AVX-512, 8 with AVX2. The file does not name the
size, and on another processor its results are wrong.
"""

import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onnx import ModelProto, TensorProto, helper

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.onnx.loading.load import MACHINE, load_model
from lowtide.frameworks.onnx.operators.nodes import all_nodes
from lowtide.frameworks.onnx.operators.tables import BLOCKED_DOMAIN
from lowtide.frameworks.onnx.running.levels import LAST_LEVEL, quiet_options, write_optimized


def blocked_nodes(model: ModelProto) -> int:
    """Count nodes in the blocked layout, subgraphs included."""
    return sum(node.domain == BLOCKED_DOMAIN for node in all_nodes(model.graph))


def machine_of(model: ModelProto) -> Mapping[str, str]:
    """Return metadata naming this machine, for a blocked model without it."""
    is_named = any(entry.key == MACHINE for entry in model.metadata_props)
    return {MACHINE: f"{_block_size()}, {_runtime()}"} if blocked_nodes(model) and not is_named else {}


def check_machine(metadata: Mapping[str, str]) -> None:
    """Raise UnsupportedError for a file with blocks of another size; warn if it is for another release."""
    if MACHINE not in metadata:
        return
    block, _, runtime = metadata[MACHINE].partition(", ")
    if block != str(_block_size()):
        raise UnsupportedError(
            f"this file is for processors with blocks of {block} channels, here they have {_block_size()}; plan the "
            "model on this machine"
        )
    if runtime != _runtime():
        message = f"lowtide: this file is for {runtime}, and {_runtime()} runs it; plan the model again"
        warnings.warn(message, stacklevel=4)


def _runtime() -> str:
    onnxruntime: Any = import_module("onnxruntime")
    return f"ONNX Runtime {onnxruntime.__version__}"


@cache
def _block_size() -> int:
    """Return a block's channels, to which ONNX Runtime pads a filter of one channel; 1 without blocks."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 1, 1], [1.0])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 1, 1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "block", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with TemporaryDirectory(prefix="lowtide.") as folder:
        given, optimized = Path(folder, "given.onnx"), Path(folder, "optimized.onnx")
        given.write_bytes(model.SerializeToString())
        write_optimized(given, quiet_options(LAST_LEVEL), optimized)
        return load_model(optimized).graph.initializer[0].dims[0]
