"""Losses and gradients of LSTMs with recurrent ops equal those of Caffe2, with and without sharing.

Recorded by tests/oracles/record_caffe2_recurrent.py, which stops if a changed net has other bits in Caffe2.
"""

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.caffe2 import Caffe2Model, NetDef, memonger, plan, run_once
from lowtide.core.errors import LowtideError
from lowtide.frameworks.caffe2.nets.load import read_net

DATA = Path(__file__).parents[2] / "data" / "caffe2_recurrent.json.gz"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))

Arrays = dict[str, np.ndarray]


def _arrays(plain: dict[str, list[Any]]) -> Arrays:
    return {
        blob: np.frombuffer(bytes.fromhex(content), kind).reshape(shape)
        for blob, (kind, shape, content) in plain.items()
    }


def _results(net: NetDef, record: dict[str, Any]) -> Arrays:
    return dict(run_once(net, _arrays(record["inputs"]), net.external_output).results)


def _net(record: dict[str, Any]) -> NetDef:
    return read_net(bytes.fromhex(record["net"]), record["name"])


records = pytest.mark.parametrize("record", RECORDS, ids=[record["name"] for record in RECORDS])


@records
def test_losses_and_gradients_are_those_of_caffe2(record: dict[str, Any]) -> None:
    found = _results(_net(record), record)
    for blob, expected in _arrays(record["results"]).items():
        assert found[blob].shape == expected.shape
        np.testing.assert_allclose(found[blob], expected, rtol=2e-4, atol=2e-6, err_msg=blob)
    assert {"hidden_0_grad", "cell_0_grad", "input_grad", "lstm/gates_t_w_grad", "lstm/gates_t_b_grad"} <= {
        blob.replace("layer_0/", "") for blob in found
    }
    assert all(np.any(array) for array in found.values())


def _losses(net: NetDef) -> tuple[list[str], list[str]]:
    losses = [blob for blob in net.external_output if blob.startswith("loss")]
    return losses, [blob for blob in net.external_output if blob not in losses]


WAYS: dict[str, Callable[[NetDef], NetDef]] = {
    "gradients": lambda net: memonger.share_grad_blobs(net, *_losses(net), ""),
    "activations": lambda net: memonger.share_grad_blobs(net, *_losses(net), "", share_activations=True),
    "fast": lambda net: memonger.optimize_inference_fast(net, []),
    "interference": lambda net: memonger.optimize_interference(net, net.external_output).net,
    "released": lambda net: memonger.release_blobs_when_used(net, set()),
}


@records
@pytest.mark.parametrize("way", WAYS)
def test_gradients_stay_the_same_bits_with_blobs_sharing(way: str, record: dict[str, Any]) -> None:
    assert way in record["changed"]
    net = _net(record)
    changed = WAYS[way](net)
    assert changed != net
    before, after = _results(net, record), _results(changed, record)
    assert {blob: array.tobytes() for blob, array in after.items()} == {
        blob: array.tobytes() for blob, array in before.items()
    }


@records
def test_a_training_net_is_planned_shared_and_measured(record: dict[str, Any]) -> None:
    assert {"applied", "planned"} <= set(record["changed"])
    net = _net(record)
    shapes = {blob: (str(array.dtype), list(array.shape)) for blob, array in _arrays(record["inputs"]).items()}
    model = Caffe2Model(net, shapes=shapes)
    assert model.measure(lowtide.minimize(model.graph, effort="fast").plan).outputs_equal
    before, after = _results(net, record), _results(plan(net, shapes).net, record)
    assert all(after[blob].tobytes() == before[blob].tobytes() for blob in before)


@records
def test_every_renamed_blob_of_a_recurrent_op_is_renamed_inside_too(record: dict[str, Any]) -> None:
    """Rename all blobs, including the sequence, its gradient, outputs and parameter gradients."""
    net = _net(record)
    keep = {*net.external_input, *net.external_output}
    table = {blob: f"new {blob}" for op in net.op for blob in (*op.input, *op.output) if blob not in keep}
    changed = deepcopy(net)
    for op in changed.op:
        memonger.apply_recurrent_blob_assignments(op, table, table.__getitem__)
        op.input[:] = [table.get(blob, blob) for blob in op.input]
        op.output[:] = [table.get(blob, blob) for blob in op.output]
    before, after = _results(net, record), _results(changed, record)
    assert all(after[blob].tobytes() == before[blob].tobytes() for blob in before)
    forward = next(op for op in changed.op if op.type == "RecurrentNetwork")
    links = next(argument for argument in forward.arg if argument.name == "link_external")
    assert any(name.startswith(b"new ") for name in links.strings)


def test_a_gradient_whose_ties_do_not_fit_is_one_line() -> None:
    for name, values in (
        ("param", [3, 4, 99]),
        ("param", [3, 99]),
        ("outputs_with_grads", [0, 3, 3]),
        ("outputs_with_grads", [77, 3]),
        ("backward_link_offset", [1]),
    ):
        net = _net(RECORDS[0])
        gradient = next(op for op in net.op if op.type == "RecurrentNetworkGradient")
        next(argument for argument in gradient.arg if argument.name == name).ints = values
        with pytest.raises(LowtideError) as refused:
            _results(net, RECORDS[0])
        assert "\n" not in str(refused.value)
