"""The interpreter agrees with Caffe2 up to rounding, as recorded by tests/oracles/record_caffe2_runs.py.

Recording stops if a net changed by lowtide has other bits in Caffe2, so the records prove equal bits.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.caffe2 import NetDef, run_once
from lowtide.frameworks.caffe2.nets.load import read_net
from lowtide.frameworks.caffe2.shapes.infer import infer_types
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType

DATA = Path(__file__).parents[2] / "data" / "caffe2_runs.json.gz"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))


def _array(plain: list[Any]) -> np.ndarray:
    kind, shape, content = plain
    return np.frombuffer(bytes.fromhex(content), kind).reshape(shape)


def _case(record: dict[str, Any]) -> tuple[NetDef, dict[str, np.ndarray]]:
    net = read_net(bytes.fromhex(record["net"]), record["name"])
    return net, {blob: _array(plain) for blob, plain in record["inputs"].items()}


def test_results_are_those_of_caffe2() -> None:
    for record in RECORDS:
        net, inputs = _case(record)
        found = run_once(net, inputs, net.external_output).results
        for blob, plain in record["results"].items():
            expected = _array(plain)
            assert found[blob].shape == expected.shape
            np.testing.assert_allclose(found[blob], expected, rtol=2e-4, atol=2e-5, err_msg=f"{record['name']} {blob}")


def test_inferred_shapes_are_those_of_caffe2() -> None:
    for record in RECORDS:
        net, inputs = _case(record)
        known = {blob: TensorType(array.shape, str(array.dtype)) for blob, array in inputs.items()}
        shapes: dict[str, list[int]] = {}
        for op, types in zip(net.op, infer_types(net, known), strict=True):
            shapes.update((blob, list(kind.shape)) for blob, kind in zip(op.output, types, strict=True) if kind)
        assert shapes == record["shapes"]


def test_every_way_to_change_a_net_was_run_in_caffe2() -> None:
    ways = Counter(way for record in RECORDS for way in record["changed"])
    assert len(RECORDS) == ways["applied"] == ways["planned"] == ways["interference"] == ways["searched"] >= 200
    assert ways["gradients"] >= 4
    assert ways["dag"] >= 150
