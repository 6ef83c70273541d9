"""Weights that the runtime wrote anew are compared with those given, however large, a part at a time."""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lowtide.frameworks.onnx.running.levels import refer_to_given_weights
from lowtide.frameworks.resident import ResidentGrowth

SIZE = 2**26


def _write(path: Path, weights: Path) -> None:
    weight = numpy_helper.from_array(np.arange(SIZE // 4, dtype=np.float32).reshape(1, -1), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIZE // 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "large", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=True, location=weights.name, size_threshold=0)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read as Linux tells it")
def test_weights_are_compared_without_becoming_resident(tmp_path: Path) -> None:
    """The optimized model refers to the given file again, and a fraction of the weights was in memory for that."""
    given, kept = tmp_path / "given.onnx", tmp_path / "given.weights"
    optimized, written = tmp_path / "optimized.onnx", tmp_path / "optimized.weights"
    _write(given, kept)
    _write(optimized, written)
    shutil.copy(kept, written)
    growth = ResidentGrowth()
    refer_to_given_weights(given, optimized, written)
    added = growth.highest_bytes()
    assert added is not None
    assert added < SIZE // 2
    (tensor,) = onnx.load(optimized, load_external_data=False).graph.initializer
    assert {entry.key: entry.value for entry in tensor.external_data}["location"] == kept.name
    assert not written.exists()
