"""Nets with Caffe2's gradient ops: shapes, losses and gradients agree with Caffe2.

Recorded by tests/oracles/record_memonger_fresh.py.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide.caffe2 import Argument, Caffe2Model, NetDef, OperatorDef, run_once
from lowtide.frameworks.caffe2.nets.load import read_net
from lowtide.frameworks.caffe2.shapes.infer import last_types
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType
from tests.oracles.record_memonger_fresh import inputs_of

DATA = Path(__file__).parents[2] / "data"


def _records(name: str) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


def test_all_shapes_are_those_of_caffe2() -> None:
    """Reshape and Split get shapes and lengths from other ops."""
    for record in _records("memonger_fresh"):
        if "net" in record:
            net = read_net(bytes.fromhex(record["net"]), "net")
            known = {blob: TensorType(tuple(record["shapes"][blob])) for blob in net.external_input}
            found = {blob: list(kind.shape) for blob, kind in (known | last_types(net, known)).items()}
            assert found == record["shapes"]


def test_losses_and_gradients_are_those_of_caffe2() -> None:
    n_compared = 0
    for record in _records("memonger_fresh"):
        if "results" in record:
            net = read_net(bytes.fromhex(record["net"]), "net")
            found = run_once(net, inputs_of(net, record["shapes"]), net.external_output).results
            for blob, content in record["results"].items():
                expected = np.frombuffer(bytes.fromhex(content), np.float32).reshape(record["shapes"][blob])
                np.testing.assert_allclose(found[blob], expected, rtol=2e-3, atol=2e-4 * np.abs(expected).max())
                n_compared += 1
    assert n_compared >= 200


def test_no_gradient_of_an_lstm_counts_as_nothing() -> None:
    for record in _records("caffe2_recurrent"):
        net = read_net(bytes.fromhex(record["net"]), record["name"])
        model = Caffe2Model(net, shapes={blob: (kind, shape) for blob, (kind, shape, _) in record["inputs"].items()})
        assert all("counts one step" in sentence for sentence in model.graph.unmodeled)
        sizes = model.blob_sizes()
        for blob, (kind, shape, _) in record["results"].items():
            assert sizes[blob] == np.dtype(kind).itemsize * np.prod(shape, dtype=int)


@pytest.mark.parametrize("handed_over", ["Shape", "GivenTensorInt64Fill", "Copy"])
def test_a_shape_that_an_op_writes_is_known(handed_over: str) -> None:
    """After a write by an unknown op, the shape is unknown."""
    fill, flat = Argument(name="values", ints=[4, 6]), Argument(name="shape", ints=[-1])
    ops = {
        "Shape": [OperatorDef(type="Shape", input=["like"], output=["s"])],
        "GivenTensorInt64Fill": [
            OperatorDef(type="GivenTensorInt64Fill", output=["s"], arg=[Argument(name="shape", ints=[2]), fill])
        ],
        "Copy": [
            OperatorDef(type="Reshape", input=["like"], output=["flat", "old"], arg=[flat]),
            OperatorDef(type="Copy", input=["old"], output=["s"]),
        ],
    }[handed_over]
    use = [
        OperatorDef(type="Reshape", input=["x", "s"], output=["y", "y_old"]),
        OperatorDef(type="ConstantFill", input=["s"], output=["z"], arg=[Argument(name="input_as_shape", i=1)]),
    ]
    known = {"x": TensorType((3, 8)), "like": TensorType((4, 6))}
    found = last_types(NetDef(op=[*ops, *use]), known)
    assert (found["y"].shape, found["y_old"].shape, found["z"].shape) == ((4, 6), (2,), (4, 6))
    unknown = OperatorDef(type="Mystery", input=["like"], output=["s"])
    assert not {"y", "z"} & last_types(NetDef(op=[*ops, unknown, *use]), known).keys()


def test_a_concat_with_an_axis_of_its_own_is_split_again() -> None:
    axis = [Argument(name="axis", i=1), Argument(name="add_axis", i=1)]
    ops = [
        OperatorDef(type="Concat", input=["a", "b"], output=["joined", "lengths"], arg=axis),
        OperatorDef(type="Split", input=["joined", "lengths"], output=["c", "d"], arg=axis),
    ]
    net = NetDef(op=ops, external_input=["a", "b"], external_output=["c", "d"])
    inputs = {blob: np.full((2, 3), place, np.float32) for place, blob in enumerate("ab")}
    found = run_once(net, inputs, ["joined", "c", "d"]).results
    assert found["joined"].shape == (2, 2, 3)
    assert all(np.array_equal(found[after], inputs[before]) for before, after in ("ac", "bd"))
    types = last_types(net, {blob: TensorType((2, 3)) for blob in "ab"})
    assert types["joined"].shape == (2, 2, 3)
    assert types["c"].shape == types["d"].shape == (2, 3)
